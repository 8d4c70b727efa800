//! Sets of paths: which fields somebody owns, or which have changed.
//!
//! A tree, step by step. That `spec` is a member says nothing of `spec.replicas`, and the other way round:
//! whoever owns a list item owns that there is such an item, and its fields apart from it.

use std::collections::BTreeMap;

use super::path::PathElement;

/// A set of paths. No node is empty: each is a member or has one below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(BTreeMap<PathElement, Node>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) is_member: bool,
    pub(super) below: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.is_member && self.below.is_empty()
    }
}

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a step: it itself if it is a member, and what is below.
    pub(super) fn add(&mut self, element: PathElement, is_member: bool, below: Self) {
        if !is_member && below.is_empty() {
            return;
        }
        let node = self.0.entry(element).or_default();
        node.is_member |= is_member;
        node.below.unite(below);
    }

    /// Adds fields of fields.
    pub(super) fn add_field(&mut self, path: &[&str]) {
        if let Some((first, rest)) = path.split_first() {
            let mut below = Self::default();
            below.add_field(rest);
            self.add(PathElement::Field((*first).into()), rest.is_empty(), below);
        }
    }

    pub(super) fn has(&self, element: &PathElement) -> bool {
        self.0.get(element).is_some_and(|node| node.is_member)
    }

    /// What is below a step.
    pub(super) fn below(&self, element: &PathElement) -> Option<&Self> {
        self.0.get(element).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    /// The steps in order, with what is there.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathElement, &Node)> {
        self.0.iter()
    }

    /// Adds all of another.
    pub(super) fn unite(&mut self, mut other: Self) {
        // The smaller is put into the larger: many small sets cost what they hold.
        if other.0.len() > self.0.len() {
            std::mem::swap(self, &mut other);
        }
        for (element, node) in other.0 {
            let mine = self.0.entry(element).or_default();
            mine.is_member |= node.is_member;
            mine.below.unite(node.below);
        }
    }

    /// Takes the members of another out; what is below them stays.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.subtract_with(other, false);
    }

    /// Takes the members of another out, with all that is below them.
    pub(super) fn subtract_whole(&mut self, other: &Self) {
        self.subtract_with(other, true);
    }

    fn subtract_with(&mut self, other: &Self, whole: bool) {
        let take = |mine: &mut Node, theirs: &Node| {
            if theirs.is_member {
                mine.is_member = false;
                if whole {
                    mine.below = Self::default();
                }
            }
            mine.below.subtract_with(&theirs.below, whole);
        };
        // Whichever is shorter is walked.
        if other.0.len() < self.0.len() {
            for (element, theirs) in &other.0 {
                if let Some(mine) = self.0.get_mut(element) {
                    take(mine, theirs);
                    if mine.is_empty() {
                        self.0.remove(element);
                    }
                }
            }
        } else {
            self.0.retain(|element, mine| {
                if let Some(theirs) = other.0.get(element) {
                    take(mine, theirs);
                }
                !mine.is_empty()
            });
        }
    }

    /// What is in both.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let (short, long) =
            if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        let mut both = Self::default();
        for (element, one) in &short.0 {
            if let Some(other) = long.0.get(element) {
                let below = one.below.intersection(&other.below);
                both.add(element.clone(), one.is_member && other.is_member, below);
            }
        }
        both
    }

    /// The paths of all members for people; at each level the members first.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.add_paths("", &mut paths);
        paths
    }

    fn add_paths(&self, above: &str, paths: &mut Vec<String>) {
        let members = self.0.iter().filter(|(_, node)| node.is_member);
        paths.extend(members.map(|(element, _)| format!("{above}{element}")));
        for (element, node) in self.0.iter().filter(|(_, node)| !node.below.is_empty()) {
            node.below.add_paths(&format!("{above}{element}"), paths);
        }
    }
}
