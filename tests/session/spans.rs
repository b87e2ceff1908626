//! Spans around requests, as a subscriber sees them.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use epoll_group::stats::Counter;
use lab::child::in_child;
use lab::engine::{Fixture, config};
use lab::{LONG, eventually};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span: its name and fields, and how often it was entered, exited and closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    text: String,
    uses: [u32; 3],
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.text, " {field}={value:?}").expect("a String takes everything");
    }
}

/// Keeps every span of the crate, by its number.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<BTreeMap<u64, Seen>>>);

impl Spans {
    fn all(&self) -> Vec<Seen> {
        self.0.lock().expect("no panic").values().cloned().collect()
    }

    fn note(&self, id: &Id, place: usize) {
        let mut spans = self.0.lock().expect("no panic");
        spans.get_mut(&id.into_u64()).expect("a span").uses[place] += 1;
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("epoll_group")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = Seen { text: span.metadata().name().into(), ..Seen::default() };
        span.record(&mut seen);
        let mut spans = self.0.lock().expect("no panic");
        let id = spans.len() as u64 + 1;
        spans.insert(id, seen);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.note(id, 0);
    }

    fn exit(&self, id: &Id) {
        self.note(id, 1);
    }

    fn try_close(&self, id: Id) -> bool {
        self.note(&id, 2);
        true
    }
}

#[test]
fn each_request_and_each_receive_has_a_span_that_names_its_connection() {
    in_child(|| {
        let spans = Spans::default();
        tracing::subscriber::set_global_default(spans.clone()).expect("the first");
        let server = Fixture::start(config());
        let mut client = server.client_with_sessions([7]);
        client.execute(7, "one").good();
        client.execute(7, "panic").failure();
        client.finish();
        server.wait_until_even();
        let of = |name: &str| -> Vec<String> {
            let spans = spans.all().into_iter().filter(|span| span.text.starts_with(name));
            spans.map(|span| span.text).collect()
        };
        let count = |counter| server.count(counter) as usize;
        eventually(LONG, || of("received ").len() == count(Counter::Receives));
        assert_eq!(count(Counter::RequestsExecuted), 2);
        let requests = of("request ");
        assert_eq!(requests.len(), 2, "{requests:?}");
        let connection = requests[0].split(' ').nth(1).expect("a connection");
        let request = format!("request {connection} session=1 class=\"ordinary\"");
        assert_eq!(requests, [&*request, &*request]);
        let receive = format!("received {connection} class=");
        assert!(of("received").iter().all(|text| text.starts_with(&receive)), "{receive}");
        assert!(spans.all().iter().all(|span| span.uses == [1, 1, 1]), "{:?}", spans.all());
    });
}
