//! Servers that were seen to speak MCP: they are known before they speak the next time.

use rusqlite::{Connection, params};

/// Servers remembered of one user; the ones seen longest ago go.
const MOST: u32 = 1_024;

/// Remembers a server, or that it was seen again.
pub(crate) fn put(db: &Connection, uid: u32, server: &str, at: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("INSERT OR REPLACE INTO known_servers (uid, server, seen_at) VALUES (?1, ?2, ?3)")?
        .execute(params![uid, server, at])?;
    db.prepare_cached(
        "DELETE FROM known_servers WHERE uid = ?1 AND server IN
         (SELECT server FROM known_servers WHERE uid = ?1 ORDER BY seen_at DESC LIMIT -1 OFFSET ?2)",
    )?
    .execute(params![uid, MOST])?;
    Ok(())
}

/// The servers that were seen last, oldest first; at most `limit`.
pub(crate) fn newest(db: &Connection, limit: u32) -> Result<Vec<(u32, String)>, rusqlite::Error> {
    let mut query = db.prepare("SELECT uid, server FROM known_servers ORDER BY seen_at DESC LIMIT ?1")?;
    let rows = query.query_map([limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut all = rows.collect::<Result<Vec<_>, _>>()?;
    all.reverse();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate;

    #[test]
    fn the_ones_seen_longest_ago_go() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate::migrate(&mut db, std::path::Path::new("memory")).unwrap();
        put(&db, 7, "npm:other", 0).unwrap();
        for n in 0..i64::from(MOST) + 5 {
            put(&db, 1, &format!("npm:{n}"), n).unwrap();
        }
        put(&db, 1, "npm:5", 9_999).unwrap();
        let all = newest(&db, 10_000).unwrap();
        assert_eq!(all.len(), MOST as usize + 1);
        assert_eq!(all.first(), Some(&(7, "npm:other".to_owned())));
        assert_eq!(all.last(), Some(&(1, "npm:5".to_owned())));
        assert!(!all.contains(&(1, "npm:4".to_owned())));
        assert_eq!(newest(&db, 1).unwrap(), [(1, "npm:5".to_owned())]);
    }
}
