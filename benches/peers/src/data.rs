//! The keys and values every store is given: the same bytes for all, made from seeds.
//!
//! Keys are 31 bytes (`registry/pods/ns-012/pod-012345`). Small values are 256 bytes of which about
//! half compresses away. Pods are JSON documents of about 2.1 KiB that differ from the version
//! before in five short fields, which is how most histories look.

use std::fmt::Write as _;

use crate::peer::Result;

/// Bytes of a key.
pub const KEY_BYTES: usize = 31;

/// Bytes of a small value.
pub const VALUE_BYTES: usize = 256;

/// A small generator with one word of state (`SplitMix64`); not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// The numbers below `count` in random order.
    pub fn shuffled(&mut self, count: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..count).collect();
        for i in (1..all.len()).rev() {
            let other = usize::try_from(self.below(i as u64 + 1)).unwrap_or(0);
            all.swap(i, other);
        }
        all
    }
}

/// The key of object `index`; keys sort as their indexes do.
pub fn key(index: u64) -> Vec<u8> {
    format!("registry/pods/ns-{:03}/pod-{:06}", index / 1000, index).into_bytes()
}

/// A [`key`] without an allocation of its own; fails where a key is longer.
pub fn key_array(index: u64) -> Result<[u8; KEY_BYTES]> {
    key(index).try_into().map_err(|_| format!("key {index} is not of {KEY_BYTES} bytes").into())
}

/// The beginning of the range of all keys.
pub const KEYS_START: &[u8] = b"registry/pods/";
/// One past the last key.
pub const KEYS_END: &[u8] = b"registry/pods0";

/// A value of [`VALUE_BYTES`] whose first 8 bytes are `nonce`, so that a reader can tell which write
/// it stems from; the first half is random, the second the same in all.
pub fn value(nonce: u64) -> Vec<u8> {
    const TEXT: &[u8] = b"status:running ready:true restarts:0 node:worker phase:bound; ";
    let mut out = Vec::with_capacity(VALUE_BYTES);
    out.extend_from_slice(&nonce.to_be_bytes());
    let mut rng = Rng::new(nonce);
    while out.len() < VALUE_BYTES / 2 {
        out.extend_from_slice(&rng.word().to_le_bytes());
    }
    out.extend(TEXT.iter().cycle().take(VALUE_BYTES - out.len()));
    out
}

/// A [`value`] without an allocation of its own.
pub fn value_array(nonce: u64) -> [u8; VALUE_BYTES] {
    value(nonce).try_into().unwrap_or([0; VALUE_BYTES])
}

/// The nonce a [`value`] carries.
pub fn nonce(value: &[u8]) -> Option<u64> {
    value.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Version `version` of Pod `index`: everything but five short fields is the same in all versions.
pub fn pod(index: u64, version: u64) -> Vec<u8> {
    let mut fixed = Rng::new(index);
    let mut changing = Rng::new(index << 32 | version);
    let mut out = String::with_capacity(2300);
    let uid = fixed.word();
    let _ = write!(
        out,
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{index:06}","namespace":"ns-{:03}","uid":"{uid:016x}-{:016x}","resourceVersion":"{}","generation":1,"labels":{{"app":"app-{}","pod-template-hash":"{:08x}","tier":"backend","team":"platform"}},"annotations":{{"checksum/config":"{:016x}{:016x}","prometheus.io/scrape":"true","prometheus.io/port":"9102"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-{}","uid":"{:016x}","controller":true,"blockOwnerDeletion":true}}]}},"#,
        index / 1000,
        fixed.word(),
        1_000_000 + changing.below(900_000_000),
        index % 40,
        fixed.word() as u32,
        fixed.word(),
        fixed.word(),
        index % 40,
        fixed.word(),
    );
    let _ = write!(
        out,
        r#""spec":{{"nodeName":"worker-{:04}","serviceAccountName":"default","restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","priority":0,"enableServiceLinks":true,"containers":["#,
        fixed.below(5000)
    );
    for container in ["main", "sidecar"] {
        let _ = write!(
            out,
            r#"{{"name":"{container}","image":"registry.example/{container}@sha256:{:016x}{:016x}{:016x}{:016x}","imagePullPolicy":"IfNotPresent","args":["--listen=0.0.0.0:8080","--log-format=json","--shutdown-grace=20s"],"ports":[{{"containerPort":8080,"protocol":"TCP"}}],"resources":{{"limits":{{"cpu":"500m","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets"}}],"terminationMessagePath":"/dev/termination-log"}}{}"#,
            fixed.word(),
            fixed.word(),
            fixed.word(),
            fixed.word(),
            if container == "main" { "," } else { "" }
        );
    }
    let _ = write!(
        out,
        r#"]}},"status":{{"phase":"Running","hostIP":"10.0.{}.{}","podIP":"10.8.{}.{}","startTime":"2026-11-20T08:{:02}:{:02}Z","conditions":[{{"type":"Ready","status":"{}","lastProbeTime":"2026-11-20T09:{:02}:{:02}Z"}},{{"type":"Initialized","status":"True","lastProbeTime":null}}],"containerStatuses":[{{"name":"main","ready":true,"restartCount":{},"containerID":"containerd://{:016x}{:016x}"}}],"observedLoad":"{}m"}}}}"#,
        fixed.below(256),
        fixed.below(256),
        fixed.below(256),
        fixed.below(256),
        fixed.below(60),
        fixed.below(60),
        if changing.below(10) == 0 { "False" } else { "True" },
        changing.below(60),
        changing.below(60),
        changing.below(12),
        fixed.word(),
        fixed.word(),
        changing.below(1000),
    );
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_as_described() {
        assert_eq!(key_array(12_345).ok().map(Vec::from), Some(key(12_345)));
        assert!(key(999) < key(1000));
        assert_eq!(value_array(7).to_vec(), value(7));
        assert_eq!(nonce(&value(7)), Some(7));
        let (a, b) = (pod(3, 1), pod(3, 2));
        assert!((1900..2400).contains(&a.len()), "{}", a.len());
        let same = a.iter().zip(&b).filter(|(x, y)| x == y).count();
        assert!(same > a.len() - 60, "{same} of {}", a.len());
    }
}
