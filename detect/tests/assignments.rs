//! Secrets in text, in the many ways people write them: the templates of `corpus/assignments.jsonl`, filled with
//! made-up values. The floors lie somewhat below what was measured (module comment of `kams_detect::egress`).

#[cfg(test)]
mod tests {
    use kams_detect::egress::{Salt, scan_arguments};
    use serde_json::{Value, json};

    /// A small generator: the same values in each run.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % sides
        }

        fn text(&mut self, alphabet: &str, length: usize) -> String {
            let letters: Vec<char> = alphabet.chars().collect();
            (0..length).map(|_| letters[self.roll(letters.len())]).collect()
        }
    }

    const MIXED: &str = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

    fn value(kind: usize, dice: &mut Dice) -> String {
        match kind {
            0 => format!(
                "{}{}",
                dice.text("abcdefghijkmnopqrstuvwxyz", 6),
                10 + dice.roll(90)
            ),
            1 => dice.text(MIXED, 12),
            2 => format!(
                "{}{}{}",
                dice.text(MIXED, 7),
                dice.text("!#@", 1),
                dice.text(MIXED, 4)
            ),
            3 => dice.text("0123456789abcdef", 32),
            4 => dice.text(MIXED, 24),
            _ => format!(
                "{}{}",
                ["BlueOtter", "Mapleriver", "TangoStone"][dice.roll(3)],
                100 + dice.roll(900)
            ),
        }
    }

    fn filled(template: &str, kind: usize, dice: &mut Dice) -> String {
        use std::fmt::Write;
        let secret = value(kind, dice);
        // What stands for base64 here only has to look like it.
        let mut pair = String::from("Ym9iOg");
        write!(pair, "{}==", dice.text(MIXED, 14)).unwrap();
        template
            .replace("{S}", &secret)
            .replace("{B}", &pair)
            .replace("{A}", &dice.text(&format!("{MIXED}+/"), 40))
    }

    fn found(text: &str) -> bool {
        let arguments = json!({ "text": text }).to_string();
        !scan_arguments(arguments.as_bytes(), None, &Salt::new(b"test")).is_empty()
    }

    #[test]
    fn assignments_are_found_and_talk_of_them_is_not() {
        let file = include_str!("../corpus/assignments.jsonl");
        let mut dice = Dice(7);
        let (mut dev, mut held, mut alarms) = ((0_u32, 0_u32), (0_u32, 0_u32), Vec::new());
        for line in file.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let template = row["template"].as_str().unwrap();
            if row["label"] == "benign" {
                if found(template) {
                    alarms.push(template.to_owned());
                }
                continue;
            }
            let count = if row["split"] == "held" {
                &mut held
            } else {
                &mut dev
            };
            let seen = (0..6)
                .filter(|kind| found(&filled(template, *kind, &mut dice)))
                .count();
            count.0 += 6;
            count.1 += u32::try_from(seen).unwrap();
            if seen < 6 && row["split"] != "held" {
                println!("{seen} of 6: {template:?}");
            }
        }
        assert!(alarms.is_empty(), "{alarms:?}");
        let share = |(all, seen): (u32, u32)| f64::from(seen) / f64::from(all);
        println!("dev {:.3}, held {:.3}", share(dev), share(held));
        assert!(share(dev) >= 0.96, "{:.3}", share(dev));
        assert!(share(held) >= 0.84, "{:.3}", share(held));
    }
}
