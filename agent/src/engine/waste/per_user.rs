//! A table with a bound over all users, in which whoever holds most loses first: nobody pushes out what is another's.

use std::collections::HashMap;
use std::hash::Hash;

use lru::LruCache;

/// Entries by user and key.
pub(super) struct PerUser<K: Hash + Eq, V> {
    users: HashMap<u32, LruCache<K, V>>,
    entries: usize,
    most: usize,
}

impl<K: Hash + Eq, V> PerUser<K, V> {
    /// A table of so many entries.
    pub(super) fn new(most: usize) -> Self {
        Self {
            users: HashMap::new(),
            entries: 0,
            most,
        }
    }

    /// The entry, which is fresh from now on.
    pub(super) fn get(&mut self, uid: u32, key: &K) -> Option<&mut V> {
        self.users.get_mut(&uid)?.get_mut(key)
    }

    /// Puts an entry in.
    pub(super) fn put(&mut self, uid: u32, key: K, value: V) {
        let own = self.users.entry(uid).or_insert_with(LruCache::unbounded);
        if own.put(key, value).is_none() {
            self.entries += 1;
        }
        while self.entries > self.most {
            let Some(heaviest) = self.users.values_mut().max_by_key(|own| own.len()) else {
                return;
            };
            if heaviest.pop_lru().is_none() {
                return;
            }
            self.entries -= 1;
        }
    }

    /// Takes a user's entries out that are `gone`.
    pub(super) fn remove(&mut self, uid: u32, gone: impl Fn(&V) -> bool) -> usize
    where
        K: Clone,
    {
        let Some(own) = self.users.get_mut(&uid) else {
            return 0;
        };
        let keys: Vec<K> = own
            .iter()
            .filter(|(_, value)| gone(value))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            own.pop(key);
        }
        self.entries -= keys.len();
        if own.is_empty() {
            self.users.remove(&uid);
        }
        keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_most_loses_first() {
        let mut table = PerUser::new(100);
        table.put(2, 7, "two");
        for key in 0..10_000 {
            table.put(1, key, "one");
        }
        assert_eq!(table.get(2, &7), Some(&mut "two"));
        assert_eq!(table.get(1, &9_900), None);
        assert_eq!(table.get(1, &9_999), Some(&mut "one"));
        assert_eq!(table.entries, 100);
        assert_eq!(table.remove(1, |_| true), 99);
        assert_eq!((table.entries, table.users.len()), (1, 1));
    }
}
