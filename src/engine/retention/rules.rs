//! The rules of one moment, what they come to, and how others take their place. Pure: no I/O.

use std::collections::BTreeSet;
use std::ops::Range;

use annals_format::retention::Rule;
use annals_format::space::{self, Key, is_system};
use bytes::Bytes;

use crate::commit::{Write, WriteKind};
use crate::error::{ErrorKind, Result};
use crate::index::Place;
use crate::reclaim::floors::{Classes, Floors, end_of};
use crate::sync::Arc;

use super::super::lost_past::LostPast;
use super::RULES_MAX;

/// All rules of one moment.
#[derive(Debug)]
pub(crate) struct Rules {
    /// By prefix of users' keys, none of them empty: rule n is that of class n + 1.
    pub(super) prefixed: Vec<(Bytes, Rule)>,
    /// The rule of all other keys; their floor is the watermark.
    default: Option<Rule>,
    classes: Arc<Classes>,
}

/// What the keys of a view of the past are held to.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(super) rules: Arc<Rules>,
    pub(super) floors: Floors,
}

/// How far back keys could be read once, by which files may have been reclaimed.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Before<'a> {
    /// Those with a prefix that had a rule, by the longest one. Each prefix once, ascending.
    pub(in crate::engine) floors: &'a [(Vec<u8>, u64)],
    /// All others.
    pub(in crate::engine) compacted: u64,
}

impl Before<'_> {
    /// The floors of all keys.
    pub(in crate::engine) fn floors(&self) -> Floors {
        let prefixes = self.floors.iter().map(|(prefix, _)| prefix.as_slice());
        let classes = Arc::new(Classes::new(prefixes));
        let of_rules = self.floors.iter().map(|(_, floor)| *floor);
        Floors::new(classes, std::iter::once(self.compacted).chain(of_rules).collect())
    }
}

/// Rules to be put in force, with a watermark to be set.
pub(super) struct Change {
    pub(super) rules: Rules,
    pub(super) compact: Option<u64>,
}

impl Rules {
    pub(super) fn new(mut rules: Vec<(Bytes, Rule)>) -> Self {
        rules.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let default = match rules.first() {
            Some((prefix, rule)) if prefix.is_empty() => Some(*rule),
            _ => None,
        };
        if default.is_some() {
            rules.remove(0);
        }
        let classes = Arc::new(Classes::new(rules.iter().map(|(prefix, _)| prefix.as_ref())));
        Self { prefixed: rules, default, classes }
    }

    /// Every rule with its prefix, that of the empty prefix first.
    pub(super) fn all(&self) -> impl Iterator<Item = (Bytes, Rule)> {
        let default = self.default.map(|rule| (Bytes::new(), rule));
        default.into_iter().chain(self.prefixed.iter().cloned())
    }

    fn rule(&self, class: usize) -> Option<&(Bytes, Rule)> {
        self.prefixed.get(class.checked_sub(1)?)
    }

    /// The floor of every class, with this watermark.
    pub(crate) fn floors(&self, compacted: u64) -> Floors {
        let mut floors = Vec::with_capacity(self.prefixed.len() + 1);
        floors.push(compacted);
        for ((_, rule), class) in self.prefixed.iter().zip(1..) {
            // The enclosing prefix is shorter, so it comes first.
            let enclosing = floors.get(self.classes.enclosing(class)).copied().unwrap_or(compacted);
            floors.push(if rule.removed { rule.floor.max(enclosing) } else { rule.floor });
        }
        Floors::new(Arc::clone(&self.classes), floors)
    }

    /// The prefix whose rule has brought a class to its floor; `None` for the watermark.
    fn named(&self, floors: &Floors, mut class: usize) -> Option<Bytes> {
        while let Some((prefix, rule)) = self.rule(class) {
            if !rule.removed || rule.floor == floors.of_class(class) {
                return Some(prefix.clone());
            }
            class = self.classes.enclosing(class);
        }
        None
    }

    /// The rules with another one for `prefix`, or none. No key gets a lower floor by that.
    pub(super) fn edited(&self, prefix: &[u8], wanted: Option<Rule>, compacted: u64) -> Self {
        let mut rules: Vec<(Bytes, Rule)> = self.all().filter(|(p, _)| p != prefix).collect();
        if prefix.is_empty() {
            rules.extend(wanted.map(|rule| (Bytes::new(), Rule { floor: 0, ..rule })));
            return Self::new(rules);
        }
        let floors = self.floors(compacted);
        // That of every key which the rule will be for: what it begins with has a rule of its own, or
        // is of this class.
        let class = self.classes.of(&[&[space::USER], prefix].concat());
        let floor = floors.of_class(class);
        let prefix = Bytes::copy_from_slice(prefix);
        match wanted {
            Some(rule) => rules.push((prefix, Rule { floor, removed: false, ..rule })),
            None if self.prefixed.iter().all(|(p, _)| *p != prefix) => {}
            None => {
                let enclosing = floors.of_class(self.classes.enclosing(class));
                if enclosing < floor {
                    let taken_back = Rule { removed: true, floor, ..Rule::default() };
                    rules.push((prefix, taken_back));
                }
            }
        }
        Self::new(rules)
    }

    /// The rules with these floors where they are higher, without those taken back that say nothing
    /// any more; `None` if that changes nothing.
    pub(super) fn raised(&self, wanted: &[(Bytes, u64)], compacted: u64) -> Option<Change> {
        // Nothing is lost below revision 2, the first one written.
        let raises = |floor: u64, old: u64| floor > old.max(1);
        let wanted = |prefix: &Bytes| {
            wanted.iter().find(|(p, _)| p == prefix).map_or(0, |(_, floor)| *floor)
        };
        let default = wanted(&Bytes::new());
        let compact = raises(default, compacted).then_some(default);
        let mut changed = compact.is_some();
        let mut rules: Vec<(Bytes, Rule)> = self.all().collect();
        for (prefix, rule) in &mut rules {
            let floor = wanted(prefix);
            if !prefix.is_empty() && raises(floor, rule.floor) {
                rule.floor = floor;
                changed = true;
            }
        }
        let next = Self::new(rules);
        let floors = next.floors(compact.unwrap_or(compacted));
        let says_nothing = |class: usize, rule: &Rule| {
            rule.removed && floors.of_class(next.classes.enclosing(class)) >= rule.floor
        };
        let mut kept: Vec<(Bytes, Rule)> = Vec::with_capacity(next.prefixed.len() + 1);
        kept.extend(next.default.map(|rule| (Bytes::new(), rule)));
        for ((prefix, rule), class) in next.prefixed.iter().zip(1..) {
            if says_nothing(class, rule) {
                changed = true;
            } else {
                kept.push((prefix.clone(), *rule));
            }
        }
        changed.then(|| Change { rules: Self::new(kept), compact })
    }

    /// The rules, and the watermark, when the past of some keys is lost, and when everything had come to where it was
    /// `before`, at most to the newest revision: behind that there is nothing. A rule that is lost is one that was taken
    /// back. What is lost cannot be read any more by a rule of its own that is as if taken back, where there is room for
    /// one, else with the keys around it; rules of longer prefixes go by it, too. `None` if that changes nothing. Answers
    /// as well which rules, by prefix, rise by what is lost: what the keys that go by them cannot be read at any more.
    pub(super) fn without(
        &self,
        lost: &[LostPast],
        before: &Before<'_>,
        place: Place,
    ) -> (Option<Change>, Vec<LostPast>) {
        let newest = place.position.revision;
        let mut rules: Vec<(Bytes, Rule)> = self.all().collect();
        let mut changed = false;
        for (prefix, floor) in self.behind(before, place.compacted) {
            let floor = floor.min(newest);
            changed = true;
            match rules.iter_mut().find(|(other, _)| *other == prefix) {
                Some((_, rule)) => rule.floor = floor,
                None => rules.push((prefix, Rule { removed: true, floor, ..Rule::default() })),
            }
        }
        let now = Self::new(rules.clone()).floors(place.compacted);
        for LostPast { prefix, upto } in lost {
            let is_new = rules.iter().all(|(other, _)| other != prefix);
            let is_higher = now.of(&[&[space::USER], &prefix[..]].concat()) <= *upto;
            if is_new && is_higher && !prefix.is_empty() && rules.len() < RULES_MAX {
                let taken_back = Rule { removed: true, ..Rule::default() };
                rules.push((Bytes::copy_from_slice(prefix), taken_back));
            }
        }
        let rules = Self::new(rules);
        let mut wanted = vec![0; rules.prefixed.len() + 1];
        for lost in lost {
            let start = [&[space::USER], &lost.prefix[..]].concat();
            for class in rules.classes.meeting(&start..&end_of(&start)) {
                if let Some(floor) = wanted.get_mut(class) {
                    *floor = lost.from().max(*floor);
                }
            }
        }
        let floors = rules.floors(place.compacted);
        let prefixes = rules.prefixed.iter().map(|(prefix, _)| prefix.clone());
        let wanted: Vec<_> = std::iter::once(Bytes::new()).chain(prefixes).zip(wanted).collect();
        let rising = wanted.iter().enumerate();
        let rising = rising.filter(|(class, (_, floor))| *floor > floors.of_class(*class).max(1));
        let by_loss = rising
            .map(|(_, (prefix, floor))| LostPast { prefix: prefix.to_vec(), upto: floor - 1 })
            .collect();
        let raised = rules.raised(&wanted, place.compacted);
        (raised.or_else(|| changed.then_some(Change { rules, compact: None })), by_loss)
    }

    /// The prefixes of these rules, and of those `before`, whose keys these rules let be read further back, with how
    /// far those did. A key goes by the longest of its prefixes that is there.
    fn behind(&self, before: &Before<'_>, compacted: u64) -> Vec<(Bytes, u64)> {
        let floors = before.floors;
        let (before, now) = (before.floors(), self.floors(compacted));
        let of_rules = self.prefixed.iter().map(|(prefix, _)| &prefix[..]);
        let prefixes: BTreeSet<&[u8]> =
            of_rules.chain(floors.iter().map(|(prefix, _)| prefix.as_slice())).collect();
        let behind = prefixes.into_iter().filter_map(|prefix| {
            let key = [&[space::USER], prefix].concat();
            let floor = before.of(&key);
            (now.of(&key) < floor).then(|| (Bytes::copy_from_slice(prefix), floor))
        });
        behind.collect()
    }

    /// How far back the keys of each rule can be read, by prefix.
    pub(super) fn listed(&self, compacted: u64) -> Vec<(Vec<u8>, u64)> {
        let floors = self.floors(compacted);
        let rules = self.prefixed.iter().zip(1..);
        rules.map(|((prefix, _), class)| (prefix.to_vec(), floors.of_class(class))).collect()
    }

    /// Whether time or new revisions may bring one of them further.
    pub(super) fn act(&self) -> bool {
        self.all().any(|(_, rule)| rule.removed || rule.revisions.is_some() || rule.age.is_some())
    }

    /// What is to be written for these rules to take the place of others.
    pub(super) fn writes_over<'p>(&self, old: &Self) -> impl Iterator<Item = Write<'p>> {
        let has = |rules: &Self, prefix: &Bytes| rules.all().find(|(p, _)| p == prefix);
        let gone = old.all().filter(|(prefix, _)| has(self, prefix).is_none());
        let gone = gone.map(|(prefix, _)| (prefix, WriteKind::Delete));
        let new = self.all().filter(|(prefix, rule)| has(old, prefix).is_none_or(|o| o.1 != *rule));
        let new = new.map(|(prefix, rule)| {
            (prefix, WriteKind::Put { value: rule.encode().into(), lease: 0 })
        });
        let writes = gone.chain(new).map(|(prefix, kind)| {
            let key = Key::Retention { prefix: &prefix }.encode().into();
            Write { key, kind }
        });
        writes.collect::<Vec<_>>().into_iter()
    }
}

impl Limits {
    /// Refuses to read an internal key as of `requested`.
    ///
    /// # Errors
    /// `Compacted`.
    pub(crate) fn check_key(&self, key: &[u8], requested: u64) -> Result<()> {
        if is_system(key) {
            return Ok(());
        }
        self.check_class(self.floors.classes().of(key), requested)
    }

    /// Refuses to read a range of internal keys, which may not be empty, as of `requested`.
    ///
    /// # Errors
    /// `Compacted`, by the greatest floor.
    pub(crate) fn check(&self, range: Range<&[u8]>, requested: u64) -> Result<()> {
        if is_system(range.start) {
            return Ok(());
        }
        self.floors.strictest(range).map_or(Ok(()), |class| self.check_class(class, requested))
    }

    fn check_class(&self, class: usize, requested: u64) -> Result<()> {
        let compacted = self.floors.of_class(class);
        if compacted <= requested {
            return Ok(());
        }
        let prefix = self.rules.named(&self.floors, class);
        Err(ErrorKind::Compacted { requested, compacted, prefix }.into())
    }
}
