//! What a guest is to run, as a file in its archive.

use std::time::Duration;

/// Where the guest finds its plan.
pub const PATH: &str = "vm-plan";

/// One program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// What it is called in the verdict; one word.
    pub name: String,
    /// Path in the guest, then arguments.
    pub command: Vec<String>,
    /// Environment, added to that of `vm-init`: `NAME=value`.
    pub environment: Vec<String>,
    /// How long it may run.
    pub limit: Duration,
}

/// Why a plan was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A line that means nothing here; its number, from 1.
    #[error("line {0} of the plan is not understood")]
    Line(usize),
    /// A value with a line end.
    #[error("`{0}` holds a line end")]
    LineEnd(String),
}

/// Writes a plan.
pub fn write(programs: &[Program]) -> Result<String, PlanError> {
    let mut text = String::new();
    for program in programs {
        let limit = program.limit.as_secs().to_string();
        let fixed = [("program", &program.name), ("limit", &limit)];
        let arguments = program.command.iter().map(|value| ("argument", value));
        let environment = program.environment.iter().map(|value| ("environment", value));
        for (key, value) in fixed.into_iter().chain(arguments).chain(environment) {
            if value.contains('\n') {
                return Err(PlanError::LineEnd(value.clone()));
            }
            text.push_str(key);
            text.push(' ');
            text.push_str(value);
            text.push('\n');
        }
    }
    Ok(text)
}

/// Reads what [`write`] wrote.
pub fn read(text: &str) -> Result<Vec<Program>, PlanError> {
    let mut programs: Vec<Program> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let refused = PlanError::Line(index + 1);
        let (key, value) = line.split_once(' ').ok_or_else(|| refused.clone())?;
        if key == "program" {
            programs.push(Program {
                name: value.to_owned(),
                ..Program::default()
            });
            continue;
        }
        let program = programs.last_mut().ok_or_else(|| refused.clone())?;
        match key {
            "limit" => {
                let seconds = value.parse().map_err(|_no_number| refused)?;
                program.limit = Duration::from_secs(seconds);
            }
            "argument" => program.command.push(value.to_owned()),
            "environment" => program.environment.push(value.to_owned()),
            _ => return Err(refused),
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let programs = vec![
            Program {
                name: "sensor".into(),
                command: vec!["/tests/sensor".into(), "--test-threads=1".into(), String::new()],
                environment: vec!["A=b c".into()],
                limit: Duration::from_secs(61),
            },
            Program {
                name: "bare".into(),
                ..Program::default()
            },
        ];
        assert_eq!(read(&write(&programs).unwrap()).unwrap(), programs);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(read("limit 3\n"), Err(PlanError::Line(1)));
        assert_eq!(read("program a\nlimit x\n"), Err(PlanError::Line(2)));
        assert_eq!(read("program a\nother b\n"), Err(PlanError::Line(2)));
        let bad = Program {
            command: vec!["a\nb".into()],
            ..Program::default()
        };
        assert_eq!(write(&[bad]), Err(PlanError::LineEnd("a\nb".into())));
    }
}
