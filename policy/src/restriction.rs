//! Restrictions: refusals that last beyond the message that caused them. Values; the store keeps them.

use std::collections::BTreeMap;

use crate::action::Action;
use crate::decide::Subject;
use crate::time::Now;

/// Most restrictions of one user. Beyond it a new tool block becomes a block of its server (a server that makes
/// up tool names must not push older blocks out), and of other kinds the one that ends soonest gives way.
const MAX_PER_USER: usize = 4_096;

/// One restriction. Which fields bind depends on the action: a tool, a whole server, or an agent.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Restriction {
    /// Number, unique within the set; 0 before it is added.
    pub id: u64,
    /// `block_tool`, `block_server`, `block_egress` or `suspend_agent`.
    pub action: Action,
    /// Whose calls are refused.
    pub user: String,
    /// The agent, for `suspend_agent`.
    pub agent: String,
    /// The server; empty for `suspend_agent`.
    pub server: String,
    /// The tool, for `block_tool`.
    pub tool: Option<String>,
    /// The rule that asked for it.
    pub rule: String,
    /// When it was added, wall clock in milliseconds.
    pub since_ms: u64,
    /// When it ends, wall clock in milliseconds; none: when lifted.
    pub until_ms: Option<u64>,
    /// Length in milliseconds, so that a clock set back cannot make it longer.
    pub ttl_ms: Option<u64>,
}

impl Restriction {
    /// The restriction that `action` leaves behind; none for actions that leave nothing, and for a tool block
    /// where no tool is concerned.
    pub fn of(
        action: Action,
        subject: &Subject<'_>,
        rule: &str,
        ttl_ms: Option<u64>,
        now: Now,
    ) -> Option<Self> {
        if !action.restricts() {
            return None;
        }
        let tool = match action {
            Action::BlockTool => Some(subject.tool?.to_owned()),
            _ => None,
        };
        let agent_wide = action == Action::SuspendAgent;
        Some(Self {
            id: 0,
            action,
            user: subject.user.to_owned(),
            agent: if agent_wide { subject.agent } else { "" }.to_owned(),
            server: if agent_wide { "" } else { subject.server }.to_owned(),
            tool,
            rule: rule.to_owned(),
            since_ms: now.wall_ms,
            until_ms: ttl_ms.map(|ttl| now.wall_ms.saturating_add(ttl)),
            ttl_ms,
        })
    }

    /// Whether it refuses messages of `subject`. An egress block cuts the network and refuses no later call.
    fn refuses(&self, subject: &Subject<'_>) -> bool {
        self.user == subject.user
            && match self.action {
                Action::SuspendAgent => self.agent == subject.agent,
                Action::BlockServer => self.server == subject.server,
                Action::BlockTool => self.server == subject.server && self.tool.as_deref() == subject.tool,
                _ => false,
            }
    }

    /// Same scope: adding one extends the other.
    fn same_scope(&self, other: &Self) -> bool {
        (self.action, &self.user, &self.agent, &self.server, &self.tool)
            == (
                other.action,
                &other.user,
                &other.agent,
                &other.server,
                &other.tool,
            )
    }
}

#[derive(Clone, Debug)]
struct Held {
    restriction: Restriction,
    /// End on the monotonic clock.
    until_mono: Option<u64>,
}

/// The restrictions in force.
#[derive(Clone, Debug, Default)]
pub struct RestrictionSet {
    by_user: BTreeMap<String, Vec<Held>>,
    last_id: u64,
}

impl RestrictionSet {
    /// The set as stored. What is left of each is measured on the wall clock, but is never more than its
    /// length, so a clock set back while the daemon was down extends nothing. Ended ones are left out.
    pub fn restore(stored: impl IntoIterator<Item = Restriction>, now: Now) -> Self {
        let mut set = Self::default();
        for restriction in stored {
            set.last_id = set.last_id.max(restriction.id);
            let left = match (restriction.until_ms, restriction.ttl_ms) {
                (None, _) => None,
                (Some(until), ttl) => {
                    let left = until.saturating_sub(now.wall_ms);
                    Some(ttl.map_or(left, |ttl| left.min(ttl)))
                }
            };
            if left != Some(0) {
                set.hold(restriction, left.map(|left| now.mono_ms.saturating_add(left)));
            }
        }
        set
    }

    fn hold(&mut self, restriction: Restriction, until_mono: Option<u64>) {
        let list = self.by_user.entry(restriction.user.clone()).or_default();
        if list.len() >= MAX_PER_USER
            && let Some(soonest) = (0..list.len()).min_by_key(|&i| list[i].until_mono.unwrap_or(u64::MAX))
        {
            list.swap_remove(soonest);
        }
        list.push(Held {
            restriction,
            until_mono,
        });
    }

    /// Adds a restriction and returns it with its number. One of the same scope that is still in force is
    /// kept, with the later end of the two.
    pub fn add(&mut self, mut restriction: Restriction, now: Now) -> Restriction {
        self.expire(now);
        let until_mono = restriction.ttl_ms.map(|ttl| now.mono_ms.saturating_add(ttl));
        let list = self.by_user.entry(restriction.user.clone()).or_default();
        if let Some(held) = list.iter_mut().find(|h| h.restriction.same_scope(&restriction)) {
            let longer = match (held.until_mono, until_mono) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(old), Some(new)) => new > old,
            };
            if longer {
                held.until_mono = until_mono;
                held.restriction.until_ms = restriction.until_ms;
                held.restriction.ttl_ms = restriction.ttl_ms;
                held.restriction.rule = restriction.rule;
            }
            return held.restriction.clone();
        }
        if list.len() >= MAX_PER_USER && restriction.action == Action::BlockTool {
            restriction.action = Action::BlockServer;
            restriction.tool = None;
            return self.add(restriction, now);
        }
        self.last_id = self.last_id.saturating_add(1);
        restriction.id = self.last_id;
        self.hold(restriction.clone(), until_mono);
        restriction
    }

    /// The restriction that refuses messages of `subject` now, the strongest where there are several.
    pub fn check(&self, subject: &Subject<'_>, now: Now) -> Option<&Restriction> {
        self.by_user
            .get(subject.user)?
            .iter()
            .filter(|held| held.until_mono.is_none_or(|until| now.mono_ms < until))
            .map(|held| &held.restriction)
            .filter(|restriction| restriction.refuses(subject))
            .max_by_key(|restriction| restriction.action)
    }

    /// Whether the server of `subject` is under an egress block now.
    pub fn cut_off(&self, subject: &Subject<'_>, now: Now) -> bool {
        self.by_user.get(subject.user).is_some_and(|list| {
            list.iter().any(|held| {
                held.restriction.action == Action::BlockEgress
                    && held.restriction.server == subject.server
                    && held.until_mono.is_none_or(|until| now.mono_ms < until)
            })
        })
    }

    /// Takes a restriction away before its end.
    pub fn lift(&mut self, id: u64) -> Option<Restriction> {
        for list in self.by_user.values_mut() {
            if let Some(at) = list.iter().position(|held| held.restriction.id == id) {
                return Some(list.remove(at).restriction);
            }
        }
        None
    }

    /// Drops what has ended and returns it.
    pub fn expire(&mut self, now: Now) -> Vec<Restriction> {
        let mut ended = Vec::new();
        self.by_user.retain(|_, list| {
            list.retain(|held| {
                let keep = held.until_mono.is_none_or(|until| now.mono_ms < until);
                if !keep {
                    ended.push(held.restriction.clone());
                }
                keep
            });
            !list.is_empty()
        });
        ended
    }

    /// All restrictions in force, by number.
    pub fn list(&self, now: Now) -> Vec<&Restriction> {
        let mut all: Vec<&Restriction> = self
            .by_user
            .values()
            .flatten()
            .filter(|held| held.until_mono.is_none_or(|until| now.mono_ms < until))
            .map(|held| &held.restriction)
            .collect();
        all.sort_by_key(|restriction| restriction.id);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject<'a>(user: &'a str, server: &'a str, tool: &'a str) -> Subject<'a> {
        Subject {
            user,
            agent: "codex",
            server,
            tool: Some(tool),
            relayed: true,
        }
    }

    fn block(action: Action, s: &Subject<'_>, ttl: Option<u64>, now: Now) -> Restriction {
        Restriction::of(action, s, "r", ttl, now).unwrap()
    }

    #[test]
    fn a_tool_block_ends_by_itself_and_touches_nothing_else() {
        let mut set = RestrictionSet::default();
        let now = Now::at(1_000_000);
        let s = subject("ana", "mail", "send");
        set.add(block(Action::BlockTool, &s, Some(900_000), now), now);
        assert!(set.check(&s, now).is_some());
        assert!(set.check(&subject("ana", "mail", "read"), now).is_none());
        assert!(set.check(&subject("ana", "git", "send"), now).is_none());
        assert!(set.check(&subject("ben", "mail", "send"), now).is_none());
        assert!(set.check(&s, now.plus(899_999)).is_some());
        assert!(set.check(&s, now.plus(900_000)).is_none());
        assert_eq!(set.expire(now.plus(900_000)).len(), 1);
    }

    #[test]
    fn a_suspended_agent_is_refused_on_every_server() {
        let mut set = RestrictionSet::default();
        let now = Now::at(0);
        let held = set.add(
            block(Action::SuspendAgent, &subject("ana", "mail", "send"), None, now),
            now,
        );
        assert!(
            set.check(&subject("ana", "other", "x"), now.plus(u64::MAX))
                .is_some()
        );
        let mut other = subject("ana", "other", "x");
        other.agent = "gemini";
        assert!(set.check(&other, now).is_none());
        assert!(set.lift(held.id).is_some());
        assert!(set.check(&subject("ana", "other", "x"), now).is_none());
        assert!(set.lift(held.id).is_none());
    }

    #[test]
    fn a_second_one_extends_and_never_shortens() {
        let mut set = RestrictionSet::default();
        let now = Now::at(0);
        let s = subject("ana", "mail", "send");
        let first = set.add(block(Action::BlockTool, &s, Some(1000), now), now);
        let second = set.add(block(Action::BlockTool, &s, Some(100), now), now);
        assert_eq!(first, second);
        let third = set.add(block(Action::BlockTool, &s, None, now), now);
        assert_eq!((third.id, third.until_ms), (first.id, None));
        assert_eq!(set.list(now).len(), 1);
    }

    #[test]
    fn clocks_that_jump_do_not_lengthen_or_end_it() {
        let mut set = RestrictionSet::default();
        let now = Now::at(10_000_000);
        let s = subject("ana", "mail", "send");
        let held = set.add(block(Action::BlockTool, &s, Some(60_000), now), now);
        // The wall clock leaps a year: only the monotonic clock counts while running.
        let leapt = Now {
            wall_ms: now.wall_ms + 31_536_000_000,
            mono_ms: now.mono_ms + 1,
        };
        assert!(set.check(&s, leapt).is_some());
        // After a restart with the wall clock set back to 0, at most its own length is left.
        let back = Now {
            wall_ms: 0,
            mono_ms: 5,
        };
        let set = RestrictionSet::restore([held], back);
        assert!(set.check(&s, back.plus(59_999)).is_some());
        assert!(set.check(&s, back.plus(60_000)).is_none());
    }

    #[test]
    fn the_number_of_restrictions_is_bounded() {
        let mut set = RestrictionSet::default();
        let now = Now::at(0);
        for i in 0..MAX_PER_USER + 10 {
            let tool = format!("t{i}");
            set.add(
                block(Action::BlockTool, &subject("ana", "mail", &tool), Some(1000), now),
                now,
            );
        }
        assert_eq!(set.list(now).len(), MAX_PER_USER);
        assert!(set.check(&subject("ana", "mail", "t0"), now).is_some());
        assert!(
            set.check(&subject("ana", "mail", "never seen"), now).is_some(),
            "the server is blocked"
        );
    }
}
