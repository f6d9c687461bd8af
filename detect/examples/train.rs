//! Fits the weights of `kams_detect::integrity::linear` and writes them, or shows what they are worth.
//!
//! `cargo xtask train` runs it: without a flag it writes the weights, with `--check` it compares them with the file,
//! with `--report` it cross-validates by group and scores what was never trained on (any further arguments are files
//! of more such rows), and with `--dump` prints each row as a JSON line, cross-validated, held ones left out.
#![expect(clippy::print_stdout, reason = "a developer's report")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kams_detect::integrity::linear::{CONSTANT, SIZE, STEP, Weights, scale, score, sentence_features};
use kams_detect::integrity::{Channel, score_with};
use serde_json::Value;

const ROUNDS: usize = 20;
const RATE: f32 = 0.2;
const SHRINK: f32 = 0.04;
/// A hostile text counts as much as this many windows of honest ones.
const HOSTILE: f32 = 2.0;
const FOLDS: u32 = 5;

struct Row {
    hostile: bool,
    group: String,
    held: bool,
    /// Kind and stratum.
    shelf: String,
    text: String,
    channel: Channel,
    /// Features of each sentence, and of each with the one before.
    windows: Vec<Vec<usize>>,
}

fn main() -> ExitCode {
    let flag = std::env::args().nth(1).unwrap_or_default();
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = rows(&crate_root.join("corpus/texts.jsonl"));
    let known: Vec<&Row> = own.iter().filter(|r| !r.held).collect();
    if known.is_empty() {
        println!("no texts to train on");
        return ExitCode::FAILURE;
    }
    if flag == "--report" {
        report(&own, &known, &crate_root.join("../../shared/corpora"));
        return ExitCode::SUCCESS;
    }
    let bytes = compressed(&train(&known));
    let file = crate_root.join("src/integrity/linear/weights.bin");
    if flag == "--dump" {
        dump(&known);
        return ExitCode::SUCCESS;
    }
    if flag == "--check" {
        let same = std::fs::read(&file).is_ok_and(|b| b == bytes);
        println!(
            "weights {}",
            if same {
                "are those of the texts"
            } else {
                "are not those of the texts: run `cargo xtask train`"
            }
        );
        return if same {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    match std::fs::write(&file, bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "clamped to the range of a signed byte"
)]
fn stored(weight: f32) -> u8 {
    ((weight / STEP).round().clamp(-127.0, 127.0) as i8).cast_unsigned()
}

fn compressed(weights: &[f32]) -> Vec<u8> {
    weights.iter().map(|w| stored(*w)).collect()
}

fn rows(file: &PathBuf) -> Vec<Row> {
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|row| {
            let field = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
            let channel = match field("kind") {
                "tool_description" => Channel::Description,
                "tool_param" => Channel::Parameter,
                "server_instructions" => Channel::Instructions,
                "tool_result" => Channel::Result,
                _ => return None,
            };
            let sentences = sentence_features(field("text"), channel);
            let mut windows = Vec::new();
            let mut before: &[usize] = &[];
            for sentence in &sentences {
                if !sentence.is_empty() {
                    windows.push(sentence.clone());
                    if !before.is_empty() {
                        windows.push([before, sentence].concat());
                    }
                }
                before = sentence;
            }
            Some(Row {
                hostile: field("label") == "malicious",
                group: field("group").to_owned(),
                held: field("split") == "held",
                shelf: format!("{} {}", field("kind"), field("stratum")),
                text: field("text").to_owned(),
                channel,
                windows,
            })
        })
        .collect()
}

fn window_score(weights: &[f32], window: &[usize]) -> f32 {
    let total = window.iter().filter_map(|f| weights.get(*f)).sum();
    score(
        total,
        count(window),
        weights.get(CONSTANT).copied().unwrap_or(0.0),
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sentence has at most a few thousand features"
)]
fn count(window: &[usize]) -> f32 {
    window.len() as f32
}

fn highest<'a>(weights: &[f32], row: &'a Row) -> Option<(f32, &'a Vec<usize>)> {
    row.windows
        .iter()
        .map(|w| (window_score(weights, w), w))
        .max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Logistic loss by AdaGrad, averaged over the later rounds. A hostile text pushes up its highest window, an honest one pushes down all of its own.
fn train(rows: &[&Row]) -> Vec<f32> {
    let mut weights = vec![0.0_f32; SIZE];
    let mut squares = vec![0.01_f32; SIZE];
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let mut seed = 12_345_u64;
    let mut sums = vec![0.0_f32; SIZE];
    let mut taken = 0.0_f32;
    for round in 0..ROUNDS {
        for i in (1..order.len()).rev() {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let pick = usize::try_from(seed >> 33).unwrap_or(0) % (i + 1);
            order.swap(i, pick);
        }
        for row in order.iter().filter_map(|k| rows.get(*k)) {
            if row.hostile {
                if let Some((_, window)) = highest(&weights, row) {
                    step(&mut weights, &mut squares, window, true);
                }
            } else {
                for window in &row.windows {
                    step(&mut weights, &mut squares, window, false);
                }
            }
        }
        if round >= ROUNDS / 2 {
            taken += 1.0;
            for (sum, weight) in sums.iter_mut().zip(&weights) {
                *sum += weight;
            }
        }
    }
    for sum in &mut sums {
        *sum /= taken;
    }
    sums
}

fn step(weights: &mut [f32], squares: &mut [f32], window: &[usize], hostile: bool) {
    let guess = logistic(window_score(weights, window));
    let slope = if hostile { (guess - 1.0) * HOSTILE } else { guess };
    let factor = scale(count(window));
    let features = window.iter().map(|f| (*f, factor)).chain([(CONSTANT, 1.0)]);
    for (feature, factor) in features {
        if let (Some(weight), Some(square)) = (weights.get_mut(feature), squares.get_mut(feature)) {
            let gradient = slope * factor + SHRINK * *weight * scale(count(window));
            *square += gradient * gradient;
            *weight -= RATE * gradient / square.sqrt();
        }
    }
}

/// 1 / (1 + e^-x) by repeated squaring: the last bit of a library's `exp` differs between machines.
fn logistic(x: f32) -> f32 {
    let mut power = 1.0 - x.clamp(-30.0, 30.0) / 1024.0;
    for _ in 0..10 {
        power *= power;
    }
    1.0 / (1.0 + power)
}

/// Every row that is not held back as a JSON line, own ones cross-validated, with the model's score and the hits.
fn dump(known: &[&Row]) {
    let show = |row: &Row, weights: &[f32], stored: &Weights| {
        let found = score_with(&row.text, row.channel, stored);
        let hits: Vec<Value> = found
            .hits
            .iter()
            .map(|h| serde_json::json!([h.signal, h.contribution, row.text.get(h.span.clone())]))
            .collect();
        let (model, window) = highest(weights, row).map_or((-9.0, &[][..]), |h| (h.0, h.1.as_slice()));
        println!(
            "{}",
            serde_json::json!({"hostile": row.hostile, "shelf": row.shelf, "group": row.group, "score": found.value,
                "model": model, "size": window.len(), "hits": hits, "text": row.text})
        );
    };
    for k in 0..FOLDS {
        let (out, kept): (Vec<&Row>, Vec<&Row>) = known.iter().partition(|r| fold(&r.group) == k);
        let weights = train(&kept);
        let stored = compressed(&weights);
        for row in out {
            show(row, &weights, &stored);
        }
    }
    let weights = train(known);
    let stored = compressed(&weights);
    for file in std::env::args().skip(2) {
        for row in &rows(&file.into()) {
            show(row, &weights, &stored);
        }
    }
}

fn fold(group: &str) -> u32 {
    group
        .bytes()
        .fold(7_u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)))
        % FOLDS
}

/// Share of rows at or above some scores of the model, and of the whole scorer: cross-validated by group, and for rows
/// never trained on.
fn report(own: &[Row], known: &[&Row], corpora: &Path) {
    const AT: [f32; 4] = [0.0, 0.5, 1.0, 1.7];
    const FINAL: [f64; 2] = [0.30, 0.55];
    let mut shelves: BTreeMap<(bool, String), Vec<(f32, f64)>> = BTreeMap::new();
    let mut put = |name: &str, row: &Row, weights: &[f32], stored: &Weights| {
        let wording = highest(weights, row).map_or(-9.0, |h| h.0);
        let value = score_with(&row.text, row.channel, stored).value;
        shelves
            .entry((row.hostile, format!("{name} {}", row.shelf)))
            .or_default()
            .push((wording, value));
    };
    for k in 0..FOLDS {
        let (out, kept): (Vec<&Row>, Vec<&Row>) = known.iter().partition(|r| fold(&r.group) == k);
        let weights = train(&kept);
        let stored = compressed(&weights);
        for row in out {
            put("validated", row, &weights, &stored);
        }
    }
    let weights = train(known);
    let stored = compressed(&weights);
    for row in own.iter().filter(|r| r.held) {
        put("held", row, &weights, &stored);
    }
    for file in ["tooldesc", "toolresult", "foreign"] {
        for row in &rows(&corpora.join(format!("{file}.open.jsonl"))) {
            put("open", row, &weights, &stored);
        }
    }
    for file in std::env::args().skip(2) {
        for row in &rows(&file.into()) {
            put("more", row, &weights, &stored);
        }
    }
    let used = stored.iter().filter(|w| **w != 0).count();
    println!(
        "{used} weights in use; share of rows (%) at scores {AT:?} of the model, and at {FINAL:?} of the scorer"
    );
    for ((hostile, shelf), scores) in &shelves {
        let mut shares: Vec<String> = Vec::new();
        let tenths = |over: usize| {
            let share = over * 1000 / scores.len().max(1);
            format!("{:3}.{}", share / 10, share % 10)
        };
        for at in AT {
            shares.push(tenths(scores.iter().filter(|s| s.0 >= at).count()));
        }
        shares.push("|".to_owned());
        for at in FINAL {
            shares.push(tenths(scores.iter().filter(|s| s.1 >= at).count()));
        }
        println!(
            "{:8} {shelf:45} {:4} {}",
            if *hostile { "hostile" } else { "honest" },
            scores.len(),
            shares.join(" ")
        );
    }
}
