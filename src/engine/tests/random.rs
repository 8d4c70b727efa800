//! Random histories of writes, compactions, background work and reopening.

use std::sync::Arc;

use bytes::Bytes;

use super::model::Model;
use super::{Numbers, compact, delete, memory, open, put, tiny, user};
use crate::clock::ManualClock;
use crate::engine::{Engine, View, Write};
use crate::options::Options;

/// A random transaction against the state of the model.
pub(super) fn random_changes(
    numbers: &mut Numbers,
    model: &Model,
    keys: u64,
) -> Vec<(Bytes, Option<Bytes>)> {
    let count = if numbers.below(8) == 0 { 1 + numbers.below(12) } else { 1 };
    let mut changes: Vec<(Bytes, Option<Bytes>)> = Vec::new();
    for _ in 0..count {
        // A few keys are hot.
        let number = if numbers.below(2) == 0 { numbers.below(3) } else { numbers.below(keys) };
        let key = user(format!("/key/{:03}", number * 7 % keys));
        if changes.iter().any(|(other, _)| *other == key) {
            continue;
        }
        let value = if model.lives(&key) && numbers.below(4) == 0 {
            None
        } else {
            let length = match numbers.below(40) {
                0 => 3000,
                n => n * 5,
            };
            let byte = u8::try_from(numbers.below(256)).unwrap();
            let mut value = vec![byte; usize::try_from(length).unwrap()];
            value.extend_from_slice(&model.revision().to_be_bytes());
            Some(Bytes::from(value))
        };
        changes.push((key, value));
    }
    changes
}

pub(super) fn writes(changes: &[(Bytes, Option<Bytes>)]) -> Vec<Write<'static>> {
    let write = |(key, value): &(Bytes, Option<Bytes>)| match value {
        Some(value) => put(key.clone(), value),
        None => delete(key.clone()),
    };
    changes.iter().map(write).collect()
}

fn sample(numbers: &mut Numbers, model: &Model) -> Vec<u64> {
    let mut revisions = vec![1, model.compacted.max(1), model.revision()];
    revisions.extend((0..3).map(|_| 1 + numbers.below(model.revision())));
    revisions
}

fn run(seed: u64, steps: u64, options: &Options) {
    eprintln!("seed {seed}");
    let clock = Arc::new(ManualClock::new(1_000));
    let options = &options.clone().clock(clock.clone());
    let mut numbers = Numbers::new(seed);
    let keys = [5, 60, 250][usize::try_from(seed % 3).unwrap()];
    let mut model = Model::default();
    let mut engine: Engine = open(options).unwrap();
    let mut views: Vec<(View, Model)> = Vec::new();
    for step in 0..steps {
        match numbers.below(100) {
            0..80 => {
                let changes = random_changes(&mut numbers, &model, keys);
                let outcome = super::commit(&engine, writes(&changes)).unwrap();
                model.commit(&changes);
                assert_eq!(outcome.position.revision, model.revision(), "step {step}");
            }
            80..94 => {
                // Also what is done only when nobody commits for a while.
                if step % 3 == 0 {
                    clock.advance(5_000_000);
                }
                engine.run_background().unwrap();
            }
            94 => engine.reorganise().unwrap(),
            95 => {
                let to = model.compacted + numbers.below(model.revision() - model.compacted + 1);
                if to > model.compacted {
                    compact(&engine, to).unwrap();
                    model.compacted = to;
                }
            }
            96 => {
                let revision = model.compacted.max(1);
                let revision = revision + numbers.below(model.revision() + 1 - revision);
                views.push((engine.view(revision).unwrap(), model.clone()));
                if views.len() > 3 {
                    let (view, then) = views.remove(0);
                    // Its history is cut by what has been compacted since.
                    let then = Model { compacted: model.compacted.max(then.compacted), ..then };
                    then.check_view(&view);
                }
            }
            97 => {
                views.clear();
                if numbers.below(2) == 0 {
                    engine.close().unwrap();
                }
                drop(engine);
                engine = open(options).unwrap();
            }
            98 => {
                let from = model.compacted.max(1);
                let from = from + numbers.below(model.revision() + 1 - from);
                let to = from + numbers.below(model.revision() + 1 - from);
                model.check_diff(&engine, from, to);
            }
            _ if step % 4 == 0 => {
                let revisions = sample(&mut numbers, &model);
                model.check(&engine, &revisions);
            }
            _ => {}
        }
        let bounds = [numbers.below(keys), numbers.below(keys)];
        let [start, end] = bounds.map(|number| user(format!("/key/{number:03}")));
        model.check_count(&engine.latest().unwrap(), &start, &end);
    }
    model.check(&engine, &sample(&mut numbers, &model));
    engine.reorganise().unwrap();
    model.check(&engine, &sample(&mut numbers, &model));
    for (view, then) in views {
        let then = Model { compacted: model.compacted, ..then };
        then.check_view(&view);
    }
}

#[test]
fn the_store_answers_as_the_model_does() {
    for seed in 0..12 {
        let (_, vfs) = memory();
        run(seed, 1500, &tiny(&vfs));
    }
}

#[test]
fn the_store_answers_as_the_model_does_without_maps() {
    for seed in 100..103 {
        let (_, vfs) = memory();
        let options = tiny(&vfs).read_mode(crate::ReadMode::Pread).cache_bytes(0);
        run(seed, 1000, &options);
    }
}

#[test]
fn the_store_answers_as_the_model_does_with_a_worker() {
    for seed in 200..204 {
        let (_, vfs) = memory();
        run(seed, 1500, &tiny(&vfs).background(true));
    }
}
