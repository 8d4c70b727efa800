//! Look-ups in pages and bodies find what looking at everything finds.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use annals_format::block::{Body, BodyBuilder};
use annals_format::checksum::FileSeed;
use annals_format::entry::EntryRef;
use annals_format::page::{Child, Handle, Page, PageBuilder, Separator};
use annals_format::place::StoreId;
use annals_format::{FileKind, Place};

const PLACE: Place = Place { store: StoreId([7; 16]), kind: FileKind::Head, file: 1, offset: 64 };

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 40).unwrap() % n
    }

    /// A key that shares its beginning with many others: with zeros, of few letters, and of less or more
    /// than the eight bytes that a page compares first.
    fn key(&mut self) -> Vec<u8> {
        let start: &[u8] = [&b""[..], b"/reg", b"/registry/", b"/registry/pods/ns/"][self.below(4)];
        let rest = (0..self.below(12)).map(|_| [0, b'a', b'b', 255][self.below(4)]);
        start.iter().copied().chain(rest.collect::<Vec<_>>()).collect()
    }

    /// Keys with revisions in the order of entries: revisions of one key descend.
    fn places(&mut self, count: usize, versions: usize) -> Vec<(Vec<u8>, u64)> {
        let key = |numbers: &mut Self| {
            let (key, versions) = (numbers.key(), 1 + numbers.below(versions));
            (0..versions).map(move |_| key.clone()).collect::<Vec<_>>()
        };
        let keys: Vec<_> = (0..count).flat_map(|_| key(self)).collect();
        let places = keys.into_iter().map(|key| (key, 1 + self.below(30) as u64));
        let mut places: Vec<_> = places.collect();
        places.sort_by(|a, b| annals_format::block::compare(&a.0, a.1, &b.0, b.1));
        places.dedup();
        if versions == 1 {
            places.dedup_by(|a, b| a.0 == b.0);
        }
        places
    }

    /// What to look for: something that is there, or near it, or elsewhere; with some revision.
    fn target(&mut self, places: &[(Vec<u8>, u64)]) -> (Vec<u8>, u64) {
        let (mut key, revision) = places[self.below(places.len())].clone();
        match self.below(4) {
            0 => key = self.key(),
            1 => key.push([0, b'a', 255][self.below(3)]),
            _ => {}
        }
        let revision = [0, revision - 1, revision, revision + 1, u64::MAX][self.below(5)];
        (key, revision)
    }
}

fn is_at_or_before(place: &(Vec<u8>, u64), key: &[u8], at: u64) -> bool {
    annals_format::block::compare(&place.0, place.1, key, at).is_le()
}

#[test]
fn a_page_leads_to_the_last_separator_at_or_before() {
    let mut numbers = Numbers(1);
    for round in 0..300 {
        let count = 1 + numbers.below(120);
        let places = numbers.places(count, 3);
        let mut builder = PageBuilder::new(0);
        for (number, (key, revision)) in places.iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            let handle = Handle { offset: u64::from(number) * 100, bytes: 100, number };
            let separator = Separator { key: key.clone(), revision: *revision };
            builder.push(Child { separator, handle, rank: 0 });
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes, FileSeed::new(&PLACE), PLACE.offset);
        let page = Page::decode(&bytes).unwrap();
        for _ in 0..300 {
            let (key, at) = numbers.target(&places);
            let after = places.partition_point(|place| is_at_or_before(place, &key, at));
            let found = page.search(&key, at).unwrap();
            assert_eq!(found, after.saturating_sub(1), "round {round}: {key:?} at {at}");
            let child = page.item(found).unwrap().child;
            assert_eq!((child.offset, child.number as usize), (found as u64 * 100, found));
        }
    }
}

#[test]
fn a_body_has_the_newest_version_at_or_before() {
    let mut numbers = Numbers(2);
    for round in 0..300 {
        // L0 and HEAD have one version of a key, HISTORY several.
        let kind = [FileKind::Head, FileKind::L0, FileKind::History][round % 3];
        let count = 1 + numbers.below(60);
        let places = numbers.places(count, if kind == FileKind::History { 9 } else { 1 });
        let mut builder = BodyBuilder::new(kind);
        let values: Vec<_> = places.iter().map(|_| vec![7; numbers.below(300)]).collect();
        for ((key, revision), value) in places.iter().zip(&values) {
            let (revision, version) = (*revision, 1);
            let death = if kind == FileKind::History { revision + 1 } else { 0 };
            let entry = EntryRef { key, revision, version, death, value, ..EntryRef::default() };
            builder.push(&entry);
        }
        let raw = builder.finish();
        let body = Body::parse(&raw.body, kind).unwrap();
        for _ in 0..300 {
            let (key, at) = numbers.target(&places);
            let newest = places.iter().zip(&values).find(|(p, _)| p.0 == key && p.1 <= at);
            let found = body.find(&key, at).unwrap();
            let found = found.map(|item| (item.fields.revision, item.fields.value));
            let expected = newest.map(|(place, value)| (place.1, &value[..]));
            assert_eq!(found, expected, "round {round}: {key:?} at {at} in {kind:?}");
        }
    }
}
