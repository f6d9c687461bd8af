//! `audio_multichannel_doubling`: every channel of a recording transcribed and billed. Deepgram only. Confidence 0.75,
//! 0.85 from four channels on.

use super::call::LlmCall;
use super::model_misroute::tokens;
use super::rule::{Firing, Rule};

pub(super) fn evaluate(call: &LlmCall) -> Option<Firing> {
    let transcribes = matches!(
        call.method.as_str(),
        "transcribe_file" | "transcribe_url" | "transcribe_live"
    );
    let channels = call.media.channels;
    (call.provider == "deepgram" && transcribes && call.media.multichannel && channels >= 2).then(|| {
        let seconds = call.media.dimension.max(0.0);
        Firing {
            rule: Rule::AudioMultichannelDoubling,
            confidence: if channels >= 4 { 0.85 } else { 0.75 },
            suggested_action: "disable_multichannel_or_downmix_to_mono",
            tool: None,
            subject: 0,
            numbers: vec![
                ("channels", tokens(channels)),
                ("duration_seconds", seconds),
                ("wasted_channel_seconds", seconds * tokens(channels - 1)),
            ],
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::near;
    use super::*;
    use crate::waste::Media;

    fn fired(method: &str, channels: u64, multichannel: bool) -> Option<Firing> {
        let media = Media {
            dimension: 60.0,
            channels,
            multichannel,
            ..Media::default()
        };
        evaluate(&LlmCall {
            provider: "deepgram".into(),
            method: method.into(),
            media,
            ..LlmCall::default()
        })
    }

    #[test]
    fn channels_and_methods() {
        let stereo = fired("transcribe_url", 2, true).unwrap();
        near(stereo.confidence, 0.75);
        assert!(stereo.numbers.contains(&("wasted_channel_seconds", 60.0)));
        near(fired("transcribe_file", 4, true).unwrap().confidence, 0.85);
        assert!(fired("transcribe_file", 1, true).is_none());
        assert!(fired("transcribe_file", 2, false).is_none());
        assert!(fired("speak", 2, true).is_none());
    }
}
