//! What a change does to a text, line by line.

/// Longer texts are shown whole, once without and once with the change.
const LONG: usize = 2_000;

/// Lines with ` `, `-` or `+` in front; only changed lines and two around them.
pub fn lines(before: &str, after: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    if a.len() > LONG || b.len() > LONG {
        let all = |mark: char, lines: &[&str]| lines.iter().map(|l| format!("{mark}{l}")).collect::<Vec<_>>();
        return [all('-', &a), all('+', &b)].concat();
    }
    near(&script(&a, &b))
}

/// Every line with its mark, by the longest common subsequence.
fn script<'t>(a: &[&'t str], b: &[&'t str]) -> Vec<(char, &'t str)> {
    let width = b.len() + 1;
    let mut longest = vec![0_u32; (a.len() + 1) * width];
    let at = |i: usize, j: usize| i * width + j;
    let value = |table: &[u32], i, j| table.get(at(i, j)).copied().unwrap_or_default();
    for (i, left) in a.iter().enumerate().rev() {
        for (j, right) in b.iter().enumerate().rev() {
            let here = if left == right {
                value(&longest, i + 1, j + 1) + 1
            } else {
                value(&longest, i + 1, j).max(value(&longest, i, j + 1))
            };
            if let Some(cell) = longest.get_mut(at(i, j)) {
                *cell = here;
            }
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    loop {
        match (a.get(i), b.get(j)) {
            (Some(left), Some(right)) if left == right => {
                out.push((' ', *left));
                i += 1;
                j += 1;
            }
            (Some(left), right)
                if right.is_none() || value(&longest, i + 1, j) >= value(&longest, i, j + 1) =>
            {
                out.push(('-', *left));
                i += 1;
            }
            (_, Some(right)) => {
                out.push(('+', *right));
                j += 1;
            }
            _ => return out,
        }
    }
}

fn near(script: &[(char, &str)]) -> Vec<String> {
    let changed = |index: usize| script.get(index).is_some_and(|(mark, _)| *mark != ' ');
    let shown = |index: usize| (index.saturating_sub(2)..=index + 2).any(changed);
    let lines = script.iter().enumerate().filter(|(index, _)| shown(*index));
    lines.map(|(_, (mark, line))| format!("{mark}{line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_and_what_stands_around_them() {
        let before = "a\nb\nc\nd\ne\nf\n";
        let after = "a\nb\nc\nd\nX\nf\ng\n";
        assert_eq!(lines(before, after), [" c", " d", "-e", "+X", " f", "+g"]);
        assert_eq!(lines("", "x\n"), ["+x"]);
        assert!(lines(before, before).is_empty());
    }
}
