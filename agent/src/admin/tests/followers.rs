//! Following the stream.

use std::path::Path;

use kams_export::view::Record;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::fake::{event, run, run_with};
use super::http::{get, get_text};
use crate::admin::{FeedLimits, Limits};

/// A connection that reads records one by one.
struct Reader(BufReader<UnixStream>);

impl Reader {
    async fn open(path: &Path, route: &str) -> Self {
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(get_text(route).as_bytes()).await.unwrap();
        Self(BufReader::new(stream))
    }

    /// The next record; none at the end of the stream. Chunk frames and the head are stepped over.
    async fn next(&mut self) -> Option<Record> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.unwrap() == 0 {
                return None;
            }
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
        }
    }
}

fn own() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[tokio::test]
async fn past_and_future_join_without_gap_or_double() {
    let server = run();
    let feed = &server.backend.feed;
    for n in 0..50 {
        feed.publish(event(own(), &format!("t{n}")));
    }
    let mut reader = Reader::open(&server.path, "/v1/events?follow=1&since=10").await;
    let Some(Record::Hello { instance, .. }) = reader.next().await else {
        panic!("no hello")
    };
    assert_eq!(instance, "one");
    for n in 50..100 {
        feed.publish(event(own(), &format!("t{n}")));
    }
    for seq in 11..=100 {
        assert_eq!(reader.next().await.unwrap().seq(), Some(seq));
    }
}

#[tokio::test]
async fn a_follower_can_ask_for_new_records_only() {
    let server = run();
    server.backend.feed.publish(event(own(), "old"));
    let mut reader = Reader::open(&server.path, "/v1/events?follow=1&limit=0").await;
    assert!(matches!(
        reader.next().await,
        Some(Record::Hello { next_seq: 2, .. })
    ));
    server.backend.feed.publish(event(own(), "new"));
    assert_eq!(reader.next().await.unwrap().seq(), Some(2));
}

#[tokio::test]
async fn a_slow_reader_is_told_and_the_engine_does_not_wait() {
    let feed = FeedLimits {
        follower: 100,
        ..FeedLimits::default()
    };
    let server = run_with(Limits::default(), feed);
    let mut reader = Reader::open(&server.path, "/v1/events?follow=1").await;
    assert!(matches!(reader.next().await, Some(Record::Hello { .. })));
    // Far more than queue, chunk and socket buffers hold, published while nobody reads.
    let total = 20_000;
    for n in 0..total {
        server.backend.feed.publish(event(own(), &format!("{n:0>200}")));
    }
    let (mut got, mut missed) = (0, 0);
    let mut last = 0;
    while got + missed < total {
        match reader.next().await.unwrap() {
            Record::Missed { count } => missed += count,
            Record::Alive => {}
            record => {
                let seq = record.seq().unwrap();
                assert!(seq > last, "in order");
                last = seq;
                got += 1;
            }
        }
    }
    assert_eq!(
        (got + missed, last),
        (total, total),
        "every record is delivered or counted, the newest is there"
    );
    assert!(missed > 0 && got >= 100);
    let text = String::from_utf8(server.metrics.render().unwrap()).unwrap();
    let counted = kams_export::metrics::value_of(&text, "kams_follower_missed_total");
    assert_eq!(counted.map(|c| c.to_string()), Some(missed.to_string()));
}

#[tokio::test]
async fn many_followers_and_no_more() {
    let feed = FeedLimits {
        followers: 20,
        ..FeedLimits::default()
    };
    let server = run_with(
        Limits {
            per_user: 64,
            ..Limits::default()
        },
        feed,
    );
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut reader = Reader::open(&server.path, "/v1/events?follow=1").await;
        assert!(matches!(reader.next().await, Some(Record::Hello { .. })));
        readers.push(reader);
    }
    let (status, body) = get(&server.path, "/v1/events?follow=1").await;
    assert_eq!(status, 503, "{body}");
    server.backend.feed.publish(event(own(), "x"));
    for reader in &mut readers {
        assert_eq!(reader.next().await.unwrap().seq(), Some(1));
    }
}

#[tokio::test]
async fn a_quiet_stream_says_that_it_lives_and_ends_with_the_daemon() {
    let limits = Limits {
        alive: std::time::Duration::from_millis(20),
        ..Limits::default()
    };
    let server = run_with(limits, FeedLimits::default());
    let mut reader = Reader::open(&server.path, "/v1/findings?follow=1&min_severity=critical").await;
    assert!(matches!(reader.next().await, Some(Record::Hello { .. })));
    assert_eq!(reader.next().await, Some(Record::Alive));
    server.stop.send(true).unwrap();
    while let Some(record) = reader.next().await {
        assert_eq!(record, Record::Alive);
    }
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn memory_is_bounded_per_user() {
    let feed = FeedLimits {
        per_user: 10,
        users: 2,
        ..FeedLimits::default()
    };
    let server = run_with(Limits::default(), feed);
    let feed = &server.backend.feed;
    feed.publish(event(1001, "quiet"));
    for n in 0..1_000 {
        feed.publish(event(1002, &n.to_string()));
    }
    let kept = |uid| {
        feed.since(crate::admin::Scope::User(uid), 0, 10_000, &|_| true)
            .len()
    };
    assert_eq!(
        (kept(1001), kept(1002)),
        (1, 10),
        "one user's noise leaves another's records alone"
    );
    feed.publish(event(1003, "third"));
    assert_eq!(
        (kept(1001), kept(1002), kept(1003)),
        (0, 10, 1),
        "the stalest user is forgotten"
    );
}
