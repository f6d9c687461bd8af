//! `voice_switching_loop`: one text spoken in voice after voice. ElevenLabs only. Confidence 0.7 at the threshold and
//! 0.05 more for each further voice, to 0.9.

use std::collections::{HashMap, HashSet};

use super::call::LlmCall;
use super::config::Config;
use super::rule::{Firing, Rule};
use super::session::Session;
use super::similarity::as_f64;

/// Digests of text and voice of a synthesis.
pub(super) fn speech(call: &LlmCall) -> Option<(u64, u64)> {
    let speaks = call.provider == "elevenlabs" && call.method.starts_with("text_to_speech.");
    if speaks {
        call.media.text.zip(call.media.voice)
    } else {
        None
    }
}

pub(super) fn evaluate(session: &Session, config: &Config) -> Option<Firing> {
    let knobs = &config.voice_switching_loop;
    let mut order = Vec::new();
    let mut texts: HashMap<u64, (HashSet<u64>, usize)> = HashMap::new();
    for (text, voice) in session
        .window(knobs.window_seconds)
        .filter_map(|record| record.speech)
    {
        let (voices, calls) = texts.entry(text).or_insert_with(|| {
            order.push(text);
            Default::default()
        });
        voices.insert(voice);
        *calls += 1;
    }
    let enough = |text: &u64| {
        texts
            .get(text)
            .is_some_and(|(voices, _)| voices.len() >= knobs.min_voices)
    };
    let text = order.into_iter().find(enough)?;
    let (voices, calls) = texts.get(&text)?;
    Some(Firing {
        rule: Rule::VoiceSwitchingLoop,
        confidence: (0.7 + 0.05 * as_f64(voices.len().saturating_sub(knobs.min_voices))).min(0.9),
        suggested_action: "lock_voice_id_or_cache_synthesis",
        tool: None,
        subject: text,
        numbers: vec![
            ("voices", as_f64(voices.len())),
            ("call_count", as_f64(*calls)),
            ("window_seconds", knobs.window_seconds),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires, near};
    use super::*;
    use serde_json::json;

    fn spoken(voices: &[&str], step: f64) -> Option<Firing> {
        let calls = calls(voices.iter().enumerate().map(|(index, voice)| {
            json!({
                "t": f64::from(u32::try_from(index).unwrap()) * step,
                "provider": "elevenlabs", "method": "text_to_speech.convert",
                "usage_extra": {"model_specific_meta": {"voice_id": voice, "text_hash": "t"}},
            })
        }));
        fires(Rule::VoiceSwitchingLoop, &calls, &json!({}))
    }

    #[test]
    fn different_voices_within_the_window() {
        near(spoken(&["a", "b", "c"], 5.0).unwrap().confidence, 0.7);
        near(spoken(&["a", "b", "c", "d", "a"], 1.0).unwrap().confidence, 0.75);
        assert!(spoken(&["a", "b", "a", "b"], 1.0).is_none());
        assert!(spoken(&["a", "b", "c"], 5.01).is_none());
    }
}
