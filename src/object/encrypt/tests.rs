//! Known answers, and that nothing opens that has been touched.

use super::*;
use crate::object::prefix::Prefixed;
use crate::object::transform::Identity;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).expect("a digit");
    let pair = |pair: &[u8]| u8::try_from(pair.iter().fold(0, |byte, c| byte * 16 + digit(*c)));
    text.as_bytes().chunks(2).map(|two| pair(two).expect("two digits")).collect()
}

fn ring(names: &[&str]) -> AesGcm {
    let key = |name: &str| {
        let secret = [name.bytes().fold(0, u8::wrapping_add); 32];
        EncryptionKey::new(name, &secret).expect("32 bytes")
    };
    let mut names = names.iter();
    let first = AesGcm::new(key(names.next().expect("one name")));
    names.fold(first, |ring, name| ring.or(key(name)).expect("another name"))
}

fn message<T: fmt::Debug>(result: Result<T>) -> String {
    let status = result.expect_err("it fails");
    assert!([400, 500].contains(&status.code()));
    status.message().to_owned()
}

/// Test cases 4, 10 and 16 of the specification of GCM that NIST has published.
#[test]
fn known_answers() {
    let secret = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                 1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
    let authenticated = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    let nonce = "cafebabefacedbaddecaf888";
    let table = [
        (
            16,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            24,
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c\
             7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710",
            "2519498e80f1478f37ba55bd6d27618c",
        ),
        (
            32,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ];
    for (bytes, sealed, tag) in table {
        let key = EncryptionKey::new("k", &hex(secret.split_at(2 * bytes).0)).expect("its length");
        let stored = [b"k8s:enc:aesgcm:v1:k:".to_vec(), hex(nonce), hex(sealed), hex(tag)].concat();
        let opened = AesGcm::new(key).from_storage(&stored, &hex(authenticated));
        assert_eq!(opened, Ok((hex(plain), false)), "{bytes}");
    }
}

/// What the API server of Kubernetes has written: `TestGCMLegacyDataCompatibility` of its `aes_test.go`.
#[test]
fn what_kubernetes_has_written_is_read() {
    let key = EncryptionKey::new("1", b"snorlax_awesomes").expect("16 bytes");
    let sealed = hex(
        "9f27c8fcea8a58c467d8e437dbf2d85955f9b4bd912f4ef967d788a0cb07797dac0a3f0a0845605ca85ac8562b4ae1",
    );
    let stored = [b"k8s:enc:aesgcm:v1:1:".as_slice(), &sealed].concat();
    let opened = AesGcm::new(key).from_storage(&stored, b"bamboo");
    assert_eq!(opened, Ok((b"pandas are the best".to_vec(), false)));
}

#[test]
fn a_flipped_bit_fails_at_each_byte() {
    let keys = ring(&["a", "b"]);
    let stored = keys.to_storage(b"{\"secret\": 1}", b"/registry/a").expect("it is sealed");
    for place in 0..stored.len() {
        for bit in 0..8 {
            let mut touched = stored.clone();
            if let Some(byte) = touched.get_mut(place) {
                *byte ^= 1 << bit;
            }
            let error = message(keys.from_storage(&touched, b"/registry/a"));
            let is_name = place < PREFIX.len() + 2;
            let expected = if is_name { "" } else { "cipher: message authentication failed" };
            assert!(error.starts_with(expected) && !error.is_empty(), "{place} {bit}: {error}");
        }
    }
    for length in 0..stored.len() {
        message(keys.from_storage(stored.split_at(length).0, b"/registry/a"));
    }
    let mut longer = stored.clone();
    longer.push(0);
    message(keys.from_storage(&longer, b"/registry/a"));
    assert_eq!(
        message(keys.from_storage(b"k8s:enc:aesgcm:v1:a:short", b"/registry/a")),
        "the stored data was shorter than the required size"
    );
}

#[test]
fn a_value_moved_to_another_key_fails() {
    let keys = ring(&["a"]);
    let stored = keys.to_storage(b"{}", b"/registry/a").expect("it is sealed");
    for other in ["/registry/b", "/registry/", "/registry/aa", ""] {
        let error = message(keys.from_storage(&stored, other.as_bytes()));
        assert_eq!(error, "cipher: message authentication failed");
    }
}

#[test]
fn keys_rotate() {
    let at = b"/registry/a".as_slice();
    let stored = ring(&["old"]).to_storage(b"{}", at).expect("it is sealed");
    assert_eq!(ring(&["old"]).from_storage(&stored, at), Ok((b"{}".to_vec(), false)));
    assert_eq!(ring(&["new", "old"]).from_storage(&stored, at), Ok((b"{}".to_vec(), true)));
    assert_eq!(ring(&["new", "x", "old"]).from_storage(&stored, at), Ok((b"{}".to_vec(), true)));
    let written = ring(&["new", "old"]).to_storage(b"{}", at).expect("it is sealed");
    assert!(written.starts_with(b"k8s:enc:aesgcm:v1:new:"));
    assert_eq!(
        message(ring(&["new"]).from_storage(&stored, at)),
        "no matching key was found for the provided AES transformer: \
         the stored object is encrypted, as \"k8s:enc:aesgcm:v1:old:\""
    );
    // A name says which key it is, and does not make it the same.
    let other = AesGcm::new(EncryptionKey::new("old", &[9; 32]).expect("32 bytes"));
    assert_eq!(message(other.from_storage(&stored, at)), "cipher: message authentication failed");
    // Two of the same beginning, the second with the key.
    let both = Prefixed::new("k8s:", Cut(other)).or("k8s:", Cut(ring(&["old"])));
    assert_eq!(both.from_storage(&stored, at), Ok((b"{}".to_vec(), true)));
    let both = Prefixed::new("k8s:", Cut(ring(&["new"]))).or("k8s:", Cut(ring(&["newer"])));
    let error = message(both.from_storage(&stored, at));
    assert_eq!(error.matches("no matching key was found").count(), 2, "{error}");
    assert!(error.starts_with('[') && error.ends_with(']'), "{error}");
}

/// Gets what stands behind `k8s:`.
struct Cut(AesGcm);

impl Transformer for Cut {
    fn from_storage(&self, data: &[u8], key: &[u8]) -> Result<(Vec<u8>, bool)> {
        self.0.from_storage(&[b"k8s:", data].concat(), key)
    }

    fn to_storage(&self, data: &[u8], key: &[u8]) -> Result<Vec<u8>> {
        Ok(self.0.to_storage(data, key)?.split_off(4))
    }
}

#[test]
fn what_is_not_encrypted_is_read_where_that_is_allowed() {
    let at = b"/registry/a".as_slice();
    let strict = ring(&["a"]);
    let lenient = ring(&["a"]).or_unencrypted();
    let back = Prefixed::new("", Identity).or("", ring(&["a"]));
    let stored = strict.to_storage(b"{}", at).expect("it is sealed");

    assert_eq!(
        message(strict.from_storage(b"{}", at)),
        "no matching prefix found: the stored object is not encrypted, or in no known way"
    );
    assert_eq!(lenient.from_storage(b"{}", at), Ok((b"{}".to_vec(), true)));
    assert_eq!(lenient.from_storage(&stored, at), Ok((b"{}".to_vec(), false)));
    assert_eq!(back.from_storage(&stored, at), Ok((b"{}".to_vec(), true)));
    assert_eq!(back.from_storage(b"{}", at), Ok((b"{}".to_vec(), false)));
    assert_eq!(back.to_storage(b"{}", at), Ok(b"{}".to_vec()));
    // What cannot be decrypted is not taken for what is not encrypted.
    assert_eq!(
        message(lenient.from_storage(&stored, b"/registry/b")),
        "cipher: message authentication failed"
    );
    assert_eq!(
        message(lenient.from_storage(b"k8s:enc:aescbc:v1:a:x", at)),
        "no matching prefix found: the stored object is encrypted, as \"k8s:enc:aescbc:v1:a:\""
    );
    assert_eq!(
        message(back.from_storage(&stored, b"/registry/b")),
        "cipher: message authentication failed"
    );
    assert_eq!(
        message(Identity.from_storage(&stored, at)),
        "identity transformer tried to read encrypted data: \
         the stored object is encrypted, as \"k8s:enc:aesgcm:v1:a:\""
    );
}

/// What cannot be read is told by what it begins with, and no byte of what may be secret is.
#[test]
fn what_cannot_be_read_is_told_without_what_it_says() {
    let table = [
        (b"k8s:enc:".to_vec(), "as \"k8s:enc:\""),
        (b"k8s:enc:kms:v2:name:secret:more".to_vec(), "as \"k8s:enc:kms:v2:name:\""),
        (b"k8s:enc:kms:secret".to_vec(), "as \"k8s:enc:kms:\""),
        ([b"k8s:enc:".as_slice(), &[b'x'; 1_000]].concat(), "as \"k8s:enc:\""),
        (b"secret: k8s:enc:".to_vec(), "in no known way"),
        (Vec::new(), "in no known way"),
    ];
    for (stored, expected) in table {
        let told = beginning(&stored);
        assert!(told.ends_with(expected), "{told}");
    }
}

#[test]
fn nonces_differ() {
    let keys = ring(&["a"]);
    let nonce = |_| {
        let stored = keys.to_storage(b"{}", b"k").expect("it is sealed");
        stored.split_at(PREFIX.len() + 2).1.split_at(NONCE_BYTES).0.to_vec()
    };
    let nonces: std::collections::HashSet<_> = (0..1_000).map(nonce).collect();
    assert_eq!(nonces.len(), 1_000);
}

#[test]
fn keys_are_checked_and_not_shown() {
    for bytes in [0, 1, 15, 17, 23, 25, 31, 33, 64] {
        assert!(message(EncryptionKey::new("a", &vec![1; bytes])).contains("16, 24 or 32"));
    }
    for name in ["", "a:b", ":"] {
        assert!(message(EncryptionKey::new(name, &[1; 32])).contains("colon"));
    }
    let key = EncryptionKey::from_base64("a", "c25vcmxheF9hd2Vzb21lcw==").expect("16 bytes");
    assert_eq!(key.name(), "a");
    let secret = "c25vcmxheF9hd2Vzb21lcw=!";
    assert_eq!(message(EncryptionKey::from_base64("a", secret)), "the key \"a\" is not Base64");
    let ring = AesGcm::new(key);
    let twice = ring.or(EncryptionKey::new("a", &[1; 16]).expect("16 bytes"));
    assert_eq!(message(twice), "there are two keys of the name \"a\"");

    let key = EncryptionKey::new("shown", b"snorlax_awesomes").expect("16 bytes");
    let ring = AesGcm::new(key);
    assert_eq!(
        format!("{ring:?}"),
        "AesGcm { first: EncryptionKey { name: \"shown\", .. }, others: [], reads_unencrypted: false }"
    );
    let prefixed = Prefixed::new("k8s:", ring).or("", Identity);
    assert_eq!(format!("{prefixed:?}"), "[\"k8s:\", \"\"]");
}

/// What a cipher holds is wiped when it is dropped: the feature `zeroize` of `aes-gcm` is on.
#[test]
fn keys_are_wiped() {
    fn is_wiped<T: zeroize::ZeroizeOnDrop>() {}
    is_wiped::<Aes128Gcm>();
    is_wiped::<aes_gcm::AesGcm<Aes192, U12>>();
    is_wiped::<Aes256Gcm>();
    is_wiped::<Aes192>();
}

proptest! {
    #[test]
    fn what_is_sealed_opens(data: Vec<u8>, key: Vec<u8>) {
        let keys = ring(&["a"]);
        let stored = keys.to_storage(&data, &key)?;
        prop_assert_eq!(stored.len(), data.len() + PREFIX.len() + 2 + NONCE_BYTES + TAG_BYTES);
        prop_assert_eq!(keys.from_storage(&stored, &key)?, (data, false));
    }

    #[test]
    fn any_bytes_are_refused(data: Vec<u8>, key: Vec<u8>) {
        let lenient = ring(&["a"]).or_unencrypted();
        let stored = [PREFIX.as_bytes(), b"a:", &data].concat();
        prop_assert!(lenient.from_storage(&stored, &key).is_err());
    }
}
