//! What each suggested action means, for a person.

/// Contract name and sentence.
const ADVICE: [(&str, &str); 18] = [
    (
        "pause_for_human_review",
        "Stop the loop and let a person look: the agent repeats a call without learning from its answers.",
    ),
    (
        "truncate_or_summarize_history",
        "Cut or summarise the history: each turn carries more of it along.",
    ),
    (
        "add_embedding_cache",
        "Keep embeddings by the digest of their input: this one was paid for before.",
    ),
    (
        "kill_session_or_request_user_input",
        "End the session or ask its user: it works on while nobody hears from it.",
    ),
    (
        "route_to_claude-haiku-4-5",
        "Send questions of this size to claude-haiku-4-5.",
    ),
    (
        "route_to_gpt-5-mini",
        "Send questions of this size to gpt-5-mini.",
    ),
    (
        "route_to_gpt-4o-mini",
        "Send questions of this size to gpt-4o-mini.",
    ),
    (
        "route_to_gemini-2.5-flash",
        "Send questions of this size to gemini-2.5-flash.",
    ),
    (
        "route_to_deepseek-chat",
        "Send questions of this size to deepseek-chat.",
    ),
    ("route_to_command-r", "Send questions of this size to command-r."),
    (
        "route_to_mistral-small-latest",
        "Send questions of this size to mistral-small-latest.",
    ),
    (
        "add_backoff_or_check_upstream_health",
        "Wait longer after each failure, and look at the service behind: the same request is sent without a pause.",
    ),
    (
        "reduce_tool_count_or_use_lazy_tool_loading",
        "Attach fewer servers to this agent, or load tools on demand: their definitions are paid for in every turn.",
    ),
    (
        "cache_retrieval_results_or_widen_initial_query_or_dedupe",
        "Keep what was retrieved, ask wider the first time, or drop repeated queries.",
    ),
    (
        "cache_image_locally_or_reuse_attachment_id",
        "Upload the image once and refer to it, or keep what was read from it.",
    ),
    (
        "use_image_detail_low_for_classification",
        "Ask for low image detail: the question needs no tiles.",
    ),
    (
        "reduce_image_count_or_resolution",
        "Send fewer or smaller images: nearly the whole prompt is images.",
    ),
    (
        "surface_correction_pattern_to_engineer",
        "Show the pattern to whoever builds the agent: people correct it and the answer stays.",
    ),
];

/// The same for media calls.
const MEDIA_ADVICE: [(&str, &str); 3] = [
    (
        "disable_multichannel_or_downmix_to_mono",
        "Mix the recording down to one channel (with diarisation for speakers): each channel is billed.",
    ),
    (
        "lock_voice_id_or_cache_synthesis",
        "Settle on one voice, or keep what was spoken: the text is paid for per voice.",
    ),
    (
        "cache_rerank_results_by_query_hash",
        "Keep rerank results by query and documents: the same input scores the same.",
    ),
];

/// The suggested action with this contract name, in a sentence; the name itself where there is none.
pub fn advice(action: &'static str) -> &'static str {
    ADVICE
        .iter()
        .chain(&MEDIA_ADVICE)
        .find(|(name, _)| *name == action)
        .map_or(action, |(_, sentence)| sentence)
}
