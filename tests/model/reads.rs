//! The steps of a sequence that read: at once, from views and walks that are held, and as another process.

use std::collections::VecDeque;
use std::path::Path;

use annals::{At, KeyRange, Store};
use bytes::Bytes;

use crate::run::Run;
use crate::support::DIRECTORY;
use crate::support::check::{self, Depth, Found, good, same};
use crate::support::{generate, shaped};

/// A walk that has begun.
pub(crate) struct Held {
    what: String,
    walk: Box<dyn Iterator<Item = annals::Result<String>> + Send>,
    expected: VecDeque<String>,
}

impl Held {
    /// Takes some more items.
    fn go_on(&mut self, items: usize) -> Found {
        for _ in 0..items {
            let found = good(|| self.what.clone(), self.walk.next().transpose())?;
            let expected = self.expected.pop_front();
            same(|| self.what.clone(), &found, &expected)?;
            if found.is_none() {
                break;
            }
        }
        Ok(())
    }
}

impl Run {
    pub(crate) fn range(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let request = generate::range(&mut self.random, &self.taste, model);
        self.tell("range", &request);
        let what = || format!("{request:?}");
        match (self.store().range(request.clone()), model.range(&request)) {
            (Ok(found), Ok(expected)) => same(what, &found, &expected),
            (Err(found), Err(expected)) => {
                let (found, expected) = (found.kind().clone(), expected);
                let same = std::mem::discriminant(&found) == std::mem::discriminant(&expected);
                same.then_some(()).ok_or(format!("{request:?}: {found:?} but {expected:?}"))
            }
            (found, expected) => Err(format!("{request:?}: {found:?} but {expected:?}")),
        }
    }

    pub(crate) fn history(&mut self) -> Found {
        let key = self.key();
        self.tell("history", &key);
        check::history(self.store(), &self.driver.model().model, &key)
    }

    fn key(&mut self) -> Bytes {
        loop {
            let key = generate::a_key(&mut self.random, &self.taste);
            if !key.is_empty() {
                return key;
            }
        }
    }

    pub(crate) fn diff(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let mut from = generate::a_revision(&mut self.random, model);
        let mut to = generate::a_revision(&mut self.random, model);
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let (key, end) = generate::a_range(&mut self.random, &self.taste);
        let range = KeyRange::from_etcd(&key, &end);
        self.tell("diff", &(from, to, &range));
        let what = || format!("diff from {from} to {to} of {range:?}");
        let found = self.store().diff(from, to, &range);
        if from == 0 || model.readable(from).is_err() || model.readable(to).is_err() {
            return match found {
                Err(_) => Ok(()),
                Ok(_) => Err(format!("{}: no error", what())),
            };
        }
        let found = found.and_then(Iterator::collect::<annals::Result<Vec<_>>>);
        let expected = model.diff(from, to, |key| range.contains(key));
        same(what, &good(what, found)?, &expected)
    }

    pub(crate) fn part(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let revision = generate::a_revision(&mut self.random, model);
        let (key, end) = generate::a_range(&mut self.random, &self.taste);
        if revision == 0 || model.readable(revision).is_err() {
            return Ok(());
        }
        self.tell("part", &(revision, &key, &end));
        let view = good(|| format!("view at {revision}"), self.store().at(revision))?;
        check::part(&view, model, &key, &end, self.random.next())
    }

    pub(crate) fn pin(&mut self) -> Found {
        let model = self.model();
        let revision = generate::a_revision(&mut self.random, &model);
        if revision == 0 || model.readable(revision).is_err() || self.pinned.len() > 3 {
            return Ok(());
        }
        self.tell("pin", &revision);
        let view = good(|| format!("view at {revision}"), self.store().at(revision))?;
        self.pinned.push((view, model));
        Ok(())
    }

    pub(crate) fn look_at_pins(&mut self) -> Found {
        for held in &mut self.held {
            held.go_on(self.random.index(5))?;
        }
        for (view, model) in &self.pinned {
            self.tell("look at pin", &view.revision());
            check::state(view, &model.state_at(view.revision()))?;
        }
        if self.random.one_in(2) {
            self.pinned.clear();
            for held in &mut self.held {
                held.go_on(usize::MAX)?;
            }
            self.held.clear();
        }
        Ok(())
    }

    pub(crate) fn let_go(&mut self) {
        self.pinned.clear();
        self.held.clear();
        self.reader = None;
    }

    /// Begins a walk over a state or over differences, to go on with later.
    pub(crate) fn hold(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let mut from = generate::a_revision(&mut self.random, model);
        let mut to = generate::a_revision(&mut self.random, model);
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        if from == 0 || model.readable(from).is_err() || model.readable(to).is_err() {
            return Ok(());
        }
        self.tell("hold", &(from, to));
        let differences = self.random.one_in(2);
        let store = self.store();
        let mut held = if differences {
            let walk = good(|| "diff".into(), store.diff(from, to, ..))?;
            let expected = model.diff(from, to, |_| true).into_iter();
            Held {
                what: format!("diff from {from} to {to}, held"),
                walk: Box::new(walk.map(|item| item.map(|diff| format!("{diff:?}")))),
                expected: expected.map(|diff| format!("{diff:?}")).collect(),
            }
        } else {
            let walk = good(|| "view".into(), store.at(from))?.range(..);
            let expected = model.state_at(from).into_values();
            Held {
                what: format!("scan at {from}, held"),
                walk: Box::new(walk.map(|item| item.map(|kv| format!("{kv:?}")))),
                expected: expected.map(|kv| format!("{kv:?}")).collect(),
            }
        };
        held.go_on(2)?;
        drop(truth);
        self.held.push(held);
        Ok(())
    }

    pub(crate) fn at_time(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let Some(transaction) = model.transactions(0).pop() else { return Ok(()) };
        let time = transaction.time - self.random.below(60_000).cast_signed();
        self.tell("at_time", &time);
        let found = self.store().at(At::Time(time)).map(|view| view.revision());
        match model.revision_at_time(time) {
            Some(revision) if revision >= model.compacted() => {
                let what = || format!("view at time {time}");
                same(what, &good(what, found)?, &revision)
            }
            // Either an error or the empty store, depending on what is known about times.
            _ => match found {
                Err(_) | Ok(1) => Ok(()),
                Ok(revision) => Err(format!("time {time} is before any revision: {revision}")),
            },
        }
    }

    /// Another process reads the store, or looks whether there is something new.
    pub(crate) fn reader(&mut self) -> Found {
        let seed = self.random.next();
        let newer = match &self.reader {
            None => {
                let options = shaped(self.options.clone(), &mut self.random);
                let opened = Store::open_read_only_with(Path::new(DIRECTORY), &options);
                Some(good(|| "open read-only".into(), opened)?)
            }
            Some((reader, model)) => {
                check::store(reader, model, Depth::Sampled(seed))
                    .map_err(|found| format!("stale reader: {found}"))?;
                good(|| "refresh".into(), reader.refreshed())?
            }
        };
        if let Some(reader) = newer {
            let truth = self.driver.model().clone();
            let (mut model, acknowledged) = (truth.model, truth.acknowledged);
            let depth = Depth::Sampled(seed);
            let changes = check::recovered(&reader, &model, acknowledged, depth)
                .map_err(|found| format!("reader: {found}"))?;
            self.tell("reader", &(changes, acknowledged));
            model.cut(changes);
            self.reader = Some((reader, model));
        } else if let Some((_, model)) = &self.reader {
            // Nothing new can only be said where nothing new was acknowledged.
            let acknowledged = self.driver.model().acknowledged;
            same(
                || "a reader misses what is durable".into(),
                &(model.len() < acknowledged),
                &false,
            )?;
        }
        Ok(())
    }
}
