//! Recall and false positives per stratum over the corpora beside the repository, with floors somewhat below
//! what was measured (figures in the module comment of `kams_detect::integrity`). Skipped where the corpora
//! are absent.

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use kams_detect::corpus::{Options, judge};
    use serde_json::Value;

    fn rows(file: &str) -> Option<Vec<Value>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/corpora")
            .join(format!("{file}.open.jsonl"));
        let text = std::fs::read_to_string(path).ok()?;
        Some(
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        )
    }

    fn field<'a>(row: &'a Value, name: &str) -> &'a str {
        row.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn judged(row: &Value) -> Value {
        judge(row, &Options::default()).unwrap()
    }

    fn score(row: &Value) -> f64 {
        judged(row)
            .get("score")
            .and_then(Value::as_f64)
            .unwrap_or_default()
    }

    /// (rows, at 0.30, at 0.55) per kind, label and stratum.
    type Table = HashMap<(String, String, String), (u32, u32, u32)>;

    fn table(files: &[&str]) -> Option<Table> {
        let mut table = Table::new();
        for file in files {
            for row in rows(file)?.iter().filter(|r| field(r, "kind") != "tool_name") {
                let value = score(row);
                let key = (
                    field(row, "kind").to_owned(),
                    field(row, "label").to_owned(),
                    field(row, "stratum").to_owned(),
                );
                let cell = table.entry(key).or_default();
                cell.0 += 1;
                cell.1 += u32::from(value >= 0.30);
                cell.2 += u32::from(value >= 0.55);
            }
        }
        Some(table)
    }

    #[test]
    fn strata_stay_within_their_floors() {
        let Some(table) = table(&["tooldesc", "toolresult", "foreign"]) else {
            return;
        };
        let share = |kind: &str, label: &str, stratum: &str, high: bool| {
            let (rows, medium, at_high) = table
                .get(&(kind.to_owned(), label.to_owned(), stratum.to_owned()))
                .copied()
                .unwrap_or_default();
            f64::from(if high { at_high } else { medium }) / f64::from(rows.max(1))
        };
        for (kind, stratum, high, floor) in [
            ("tool_description", "overt", false, 0.98),
            ("tool_description", "overt", true, 0.95),
            ("tool_description", "obfuscated", false, 0.99),
            ("tool_param", "overt", false, 0.99),
            ("tool_result", "overt", true, 0.93),
            ("tool_result", "obfuscated", true, 0.92),
        ] {
            let found = share(kind, "malicious", stratum, high);
            assert!(
                found >= floor,
                "recall of {stratum} {kind}: {found:.3} below {floor}"
            );
        }
        for (kind, stratum, high, ceiling) in [
            ("tool_description", "real", false, 0.01),
            ("tool_description", "real", true, 0.0),
            ("tool_param", "real", false, 0.005),
            ("tool_param", "real", true, 0.0),
            ("tool_description", "hard", false, 0.0),
            ("tool_description", "twin", false, 0.0),
            ("tool_description", "unicode", false, 0.0),
            ("tool_description", "peer_fp", false, 0.0),
            ("tool_result", "real", true, 0.005),
            ("tool_result", "hard", true, 0.02),
            ("tool_result", "mention", true, 0.10),
        ] {
            let found = share(kind, "benign", stratum, high);
            assert!(
                found <= ceiling,
                "false positives of {stratum} {kind}: {found:.3} above {ceiling}"
            );
        }
    }

    #[test]
    fn names_are_all_right() {
        let Some(rows) = rows("tooldesc") else { return };
        for row in rows.iter().filter(|r| field(r, "kind") == "tool_name") {
            let out = judged(row);
            let fired = out
                .get("findings")
                .and_then(Value::as_array)
                .is_some_and(|f| !f.is_empty());
            assert_eq!(
                fired,
                field(row, "label") == "malicious",
                "{:?}",
                field(row, "text")
            );
        }
    }

    #[test]
    fn drift_classes_and_deltas_are_all_right() {
        let Some(rows) = rows("drift") else { return };
        for row in &rows {
            let out = judged(row);
            let mut classes: Vec<&str> = out
                .get("findings")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|f| field(f, "change"))
                .collect();
            classes.sort_unstable();
            let mut expected: Vec<&str> = match row.get("change") {
                Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
                Some(Value::String(one)) => vec![one],
                _ => Vec::new(),
            };
            expected.sort_unstable();
            assert_eq!(classes, expected, "{}", field(row, "id"));
            assert_eq!(
                score(row) >= 0.30,
                field(row, "label") == "malicious",
                "{}",
                field(row, "id")
            );
        }
    }
}
