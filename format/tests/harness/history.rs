//! Histories to write groups of, and a stand-in for zstd: the format crate knows none.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::struct_field_names, reason = "the format's name")]

use std::fmt::Write as _;

use annals_format::entry::EntryRef;
use annals_format::group::{Codec, Favour, GroupsBuilder, Pack, RawGroups};

/// A small generator with one word of state (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    pub(crate) fn hex(&mut self, words: usize) -> String {
        (0..words).fold(String::new(), |text, _| format!("{text}{:016x}", self.word()))
    }
}

/// An entry that owns its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) key: Vec<u8>,
    pub(crate) revision: u64,
    pub(crate) sub: u32,
    pub(crate) tombstone: bool,
    pub(crate) create_revision: u64,
    pub(crate) version: u64,
    pub(crate) lease: i64,
    pub(crate) death: u64,
    pub(crate) value: Vec<u8>,
}

impl Version {
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        EntryRef {
            key: &self.key,
            revision: self.revision,
            sub: self.sub,
            tombstone: self.tombstone,
            create_revision: self.create_revision,
            version: self.version,
            lease: self.lease,
            death: self.death,
            value: &self.value,
            ..EntryRef::default()
        }
    }

    pub(crate) fn of(entry: &EntryRef<'_>) -> Self {
        Self {
            key: entry.key.to_vec(),
            revision: entry.revision,
            sub: entry.sub,
            tombstone: entry.tombstone,
            create_revision: entry.create_revision,
            version: entry.version,
            lease: entry.lease,
            death: entry.death,
            value: entry.value.to_vec(),
        }
    }
}

/// The history of `keys` keys with `versions` versions each, all of one lifetime; the keys are
/// written in turns. Newest first within a key, as a file has it.
pub(crate) fn history(
    keys: u64,
    versions: u64,
    value: impl Fn(u64, u64) -> Vec<u8>,
) -> impl Iterator<Item = Version> {
    let entry = move |index: u64, version: u64| {
        let revision = |version: u64| 1_000 + version * keys + index;
        Version {
            key: format!("\x01registry/pods/ns-{:03}/pod-{index:06}", index / 1000).into_bytes(),
            revision: revision(version),
            create_revision: revision(1),
            version,
            death: revision(version + 1),
            value: value(index, version),
            ..Version::default()
        }
    };
    (0..keys)
        .flat_map(move |index| (1..=versions).rev().map(move |v| (index, v)))
        .map(move |(index, version)| entry(index, version))
}

/// A document of about 2.1 KiB. All versions of one are the same but for five short fields.
pub(crate) fn pod(index: u64, version: u64) -> Vec<u8> {
    let mut fixed = Rng(index);
    let mut changing = Rng(index << 32 | version);
    let (name, app, space) = (format!("pod-{index:06}"), index % 40, index / 1000);
    let mut out = String::new();
    let _ = write!(
        out,
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"ns-{space:03}","uid":"{}","resourceVersion":"{}","generation":1,"labels":{{"app":"app-{app}","pod-template-hash":"{:08x}","tier":"backend","team":"platform"}},"annotations":{{"checksum/config":"{}","prometheus.io/scrape":"true","prometheus.io/port":"9102"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-{app}","uid":"{}","controller":true,"blockOwnerDeletion":true}}]}},"#,
        fixed.hex(2),
        1_000_000 + changing.below(900_000_000),
        fixed.below(1 << 32),
        fixed.hex(2),
        fixed.hex(1),
    );
    let _ = write!(
        out,
        r#""spec":{{"nodeName":"worker-{:04}","serviceAccountName":"default","restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","priority":0,"enableServiceLinks":true,"containers":["#,
        fixed.below(5000),
    );
    for container in ["main", "sidecar"] {
        let comma = if container == "main" { "," } else { "" };
        let _ = write!(
            out,
            r#"{{"name":"{container}","image":"registry.example/{container}@sha256:{}","imagePullPolicy":"IfNotPresent","args":["--listen=0.0.0.0:8080","--log-format=json","--shutdown-grace=20s"],"ports":[{{"containerPort":8080,"protocol":"TCP"}}],"resources":{{"limits":{{"cpu":"500m","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets"}}],"terminationMessagePath":"/dev/termination-log"}}{comma}"#,
            fixed.hex(4),
        );
    }
    let ready = if changing.below(10) == 0 { "False" } else { "True" };
    let _ = write!(
        out,
        r#"]}},"status":{{"phase":"Running","hostIP":"10.0.{}.{}","podIP":"10.8.{}.{}","startTime":"2026-11-20T08:{:02}:{:02}Z","conditions":[{{"type":"Ready","status":"{ready}","lastProbeTime":"2026-11-20T09:{:02}:{:02}Z"}},{{"type":"Initialized","status":"True","lastProbeTime":null}}],"containerStatuses":[{{"name":"main","ready":true,"restartCount":{},"containerID":"containerd://{}"}}],"observedLoad":"{}m"}}}}"#,
        fixed.below(256),
        fixed.below(256),
        fixed.below(256),
        fixed.below(256),
        fixed.below(60),
        fixed.below(60),
        changing.below(60),
        changing.below(60),
        changing.below(12),
        fixed.hex(2),
        changing.below(1000),
    );
    out.into_bytes()
}

/// 256 bytes, of which half are random and half are the same in all.
pub(crate) fn half_random(index: u64, version: u64) -> Vec<u8> {
    const TEXT: &[u8] = b"status:running ready:true restarts:0 node:worker phase:bound; ";
    let mut rng = Rng(index << 32 | version);
    let mut out: Vec<u8> = (0..16).flat_map(|_| rng.word().to_le_bytes()).collect();
    out.extend(TEXT.iter().cycle().take(256 - out.len()));
    out
}

/// What a trained dictionary is like: samples, one after the other.
pub(crate) fn dictionary(bytes: usize, value: impl Fn(u64, u64) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for index in 0.. {
        if out.len() >= bytes {
            break;
        }
        out.extend(value(1_000_000 + index * 37, 1));
    }
    out.truncate(bytes);
    out
}

/// Stands in for zstd: frames that say whether they were made over a dictionary, and in which runs
/// of one byte are short.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    pub(crate) dictionary: Vec<u8>,
}

impl Pack for Runs {
    fn zstd(&mut self, value: &[u8], dictionary: bool) -> Option<Vec<u8>> {
        let mut out = vec![u8::from(dictionary)];
        for run in value.chunk_by(|a, b| a == b) {
            for piece in run.chunks(255) {
                out.extend([u8::try_from(piece.len()).unwrap_or(0), piece[0]]);
            }
        }
        (out.len() < value.len()).then_some(out)
    }
}

impl Codec for Runs {
    type Frame = Vec<u8>;

    fn frame(&mut self, _: usize, stored: &[u8], bytes: usize, trained: bool) -> Option<Vec<u8>> {
        let (first, pairs) = stored.split_first()?;
        let mut out = Vec::new();
        for pair in pairs.chunks(2) {
            let [count, byte] = pair else { return None };
            out.extend(std::iter::repeat_n(*byte, usize::from(*count)));
        }
        (*first == u8::from(trained) && out.len() == bytes).then_some(out)
    }

    fn dictionary(&self) -> &[u8] {
        &self.dictionary
    }
}

/// All blocks of a history.
pub(crate) fn write(
    favour: Favour,
    codec: &mut Runs,
    block_bytes: usize,
    versions: impl IntoIterator<Item = Version>,
) -> Vec<RawGroups> {
    let mut builder = GroupsBuilder::new(favour, &codec.dictionary.clone(), block_bytes);
    let mut blocks = Vec::new();
    for version in versions {
        builder.push(&version.entry(), codec);
        if builder.is_full() {
            blocks.extend(builder.finish());
        }
    }
    blocks.extend(std::iter::from_fn(|| builder.finish()));
    blocks
}
