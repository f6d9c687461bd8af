//! `repair_loop`: the person corrects, and the answers around the corrections stay nearly the same.
//!
//! A correction is a turn with a word that rejects, shorter than `length_ratio` of the answer before it. The answers
//! compared are those before and after each correction. Confidence 0.65 at the threshold and 0.05 more for each further
//! correction, to 0.9. English only: the words are.

use super::call::LlmCall;
use super::config::Config;
use super::request::Turn;
use super::rule::{Firing, Rule};
use super::similarity::{Metric, Pieces, as_f64, mean_pairwise};

pub(super) fn evaluate(call: &LlmCall, config: &Config) -> Option<Firing> {
    let knobs = &config.repair_loop;
    let all = call.request.turns.as_slice();
    let turns = all
        .get(all.len().saturating_sub(knobs.window_turns)..)
        .unwrap_or_default();
    let mut corrections = 0;
    let mut compared = vec![false; turns.len()];
    let mut answer: Option<(usize, usize)> = None;
    let mut pending = false;
    for (index, turn) in turns.iter().enumerate() {
        match turn {
            Turn::Other => {}
            Turn::Agent { characters, .. } => {
                answer = Some((index, *characters));
                if let Some(mark) = compared.get_mut(index).filter(|_| pending) {
                    *mark = true;
                }
                pending = false;
            }
            Turn::User { characters, corrects } => {
                let Some((before, length)) = answer else { continue };
                if *corrects && as_f64(*characters) < knobs.length_ratio * as_f64(length) {
                    corrections += 1;
                    pending = true;
                    if let Some(mark) = compared.get_mut(before) {
                        *mark = true;
                    }
                }
            }
        }
    }
    let answers: Vec<&Pieces> = turns
        .iter()
        .zip(&compared)
        .filter_map(|(turn, compared)| match turn {
            Turn::Agent { pieces, .. } if *compared => Some(pieces),
            _ => None,
        })
        .collect();
    if corrections < knobs.min_corrections || answers.len() < 2 {
        return None;
    }
    let mean = mean_pairwise(Metric::TfidfCharngram, &answers);
    (mean >= knobs.similarity_threshold).then(|| Firing {
        rule: Rule::RepairLoop,
        confidence: (0.65 + 0.05 * as_f64(corrections.saturating_sub(knobs.min_corrections))).min(0.9),
        suggested_action: "surface_correction_pattern_to_engineer",
        tool: None,
        subject: 0,
        numbers: vec![
            ("correction_count", as_f64(corrections)),
            ("window_turns", as_f64(knobs.window_turns)),
            ("mean_similarity", mean),
            (
                "turns_evaluated",
                as_f64(turns.iter().filter(|turn| !matches!(turn, Turn::Other)).count()),
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires, near};
    use super::*;
    use serde_json::json;

    const ANSWER: &str = "The ferry to the island leaves at seven and at nine every morning but Sunday.";
    const OTHER: &str = "Completely unrelated remarks about penguins, glaciers and the price of copper.";

    fn talked(turns: &[(&str, &str)]) -> Option<Firing> {
        let messages: Vec<_> = turns
            .iter()
            .map(|(role, text)| json!({"role": role, "content": text}))
            .collect();
        let calls = calls([json!({"raw_request": {"messages": messages}})]);
        fires(Rule::RepairLoop, &calls, &json!({}))
    }

    #[test]
    fn corrections_without_change() {
        let (user, agent) = ("user", "assistant");
        let loop_of = |answer| {
            [
                (user, "When?"),
                (agent, ANSWER),
                (user, "no, wrong"),
                (agent, ANSWER),
                (user, "not that"),
                (agent, answer),
            ]
        };
        near(talked(&loop_of(ANSWER)).unwrap().confidence, 0.65);
        assert!(talked(&loop_of(OTHER)).is_none(), "the answer changed");
        assert!(talked(&loop_of(ANSWER)[..4]).is_none(), "one correction");
        let padded = format!("dont  {}", " ".repeat(200));
        let mut turns = loop_of(ANSWER);
        if let Some(turn) = turns.get_mut(2) {
            turn.1 = &padded;
        }
        assert!(talked(&turns).is_some(), "white space makes no turn longer");
        let long = format!("no {ANSWER}");
        assert!(
            talked(&[
                (user, "When?"),
                (agent, ANSWER),
                (user, &long),
                (agent, ANSWER),
                (user, &long),
                (agent, ANSWER)
            ])
            .is_none()
        );
    }
}
