//! `vision_re_upload`: the same image in call after call. The calls stand in a row; one without the image ends it.
//!
//! Images are told apart by the digest of their base64; remote ones are not seen. Confidence 0.7 at the threshold and
//! 0.1 more for each further call, to 0.99.

use super::config::Config;
use super::rule::{Firing, Rule};
use super::session::Session;
use super::similarity::as_f64;

pub(super) fn evaluate(session: &Session, config: &Config) -> Option<Firing> {
    let knobs = &config.vision_re_upload;
    let last = session.records().next_back()?;
    let run = |image: u64| {
        session
            .window(knobs.window_seconds)
            .rev()
            .take_while(|record| record.images.contains(&image))
            .count()
    };
    let (image, count) = last
        .images
        .iter()
        .map(|image| (*image, run(*image)))
        .max_by_key(|(_, count)| *count)?;
    (count >= knobs.min_calls).then(|| Firing {
        rule: Rule::VisionReUpload,
        confidence: (0.7 + 0.1 * as_f64(count - knobs.min_calls)).min(0.99),
        suggested_action: "cache_image_locally_or_reuse_attachment_id",
        tool: None,
        subject: image,
        numbers: vec![
            ("duplicate_count", as_f64(count)),
            ("window_seconds", knobs.window_seconds),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires, near};
    use super::*;
    use serde_json::{Value, json};

    fn sent(images: &[&str]) -> Option<Firing> {
        let calls = calls(images.iter().enumerate().map(|(index, data)| {
            let content: Value = match index % 3 {
                2 => json!([{"type": "image", "inline_data": {"mime_type": "image/png", "data": data}}]),
                0 => json!([{"type": "image", "source": {"type": "base64", "data": data}}]),
                _ => json!([{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}}]),
            };
            json!({"t": index * 5, "raw_request": {"messages": [{"role": "user", "content": content}]}})
        }));
        fires(Rule::VisionReUpload, &calls, &json!({}))
    }

    #[test]
    fn a_row_of_calls_whatever_the_shape() {
        near(sent(&["QUJD"; 3]).unwrap().confidence, 0.7);
        near(sent(&["QUJD"; 5]).unwrap().confidence, 0.9);
        near(sent(&["QUJD"; 9]).unwrap().confidence, 0.99);
        assert!(sent(&["QUJD"; 2]).is_none());
        assert!(sent(&["QUJD", "QUJD", "WFla", "QUJD"]).is_none());
    }
}
