//! Both directions of one connection: requests, and the replies as they come.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use epoll_group::codec::frame::Frame;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};

use super::legal::{Asked, Illegal, Legal, Ticket};
use super::reply::{Failure, Reply};

/// Effect of one frame of the server.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub session: u64,
    /// The request that it belongs to.
    pub to: Option<Ticket>,
    /// The requests whose replies are whole now.
    pub ended: Vec<Ticket>,
    /// True if the frame was a TOKEN_DONE.
    pub token_done: bool,
}

/// Requests and replies of one connection. Knows neither sockets nor time: its owner reports each
/// frame that was sent or received.
#[derive(Debug)]
pub struct Exchange {
    legal: Legal,
    replies: BTreeMap<Ticket, Reply>,
    /// Replies that were not taken yet, whole or not, by session in the order of the requests.
    order: BTreeMap<u64, VecDeque<Ticket>>,
    /// Fatal errors beyond the requests of their session, and those of offers.
    strays: Vec<(u64, Failure)>,
    pub keep_rows: bool,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            legal: Legal::default(),
            replies: BTreeMap::new(),
            order: BTreeMap::new(),
            strays: Vec::new(),
            keep_rows: true,
        }
    }
}

impl Exchange {
    /// Registers a message of the client. Returns the request's number if it is to be answered.
    pub fn sent(&mut self, session: u64, message: &ClientMessage) -> Option<Ticket> {
        let ticket = self.legal.sent(session, message)?;
        let asked = Asked::of(message).expect("it has a ticket");
        self.expect(session, asked, ticket);
        Some(ticket)
    }

    /// Registers a request that was sent by hand.
    pub fn asked(&mut self, session: u64, asked: Asked) -> Ticket {
        let ticket = self.legal.asked(session, asked);
        self.expect(session, asked, ticket);
        ticket
    }

    fn expect(&mut self, session: u64, asked: Asked, ticket: Ticket) {
        self.replies.insert(ticket, Reply::new(session, asked));
        self.order.entry(session).or_default().push_back(ticket);
    }

    /// Adds a frame of the server to its reply.
    pub fn received(&mut self, frame: &Frame<'_>) -> Result<Outcome, Illegal> {
        let session = frame.session();
        let illegal = |state: &str, error: String| Illegal {
            session,
            state: state.into(),
            frame: format!("kind {}: {error}", frame.kind()),
        };
        let message = frame
            .server_message(&Limits::default())
            .map_err(|error| illegal("any state", error.to_string()))?;
        let answer = self.legal.received(session, &message)?;
        if let Some(reply) = answer.to.and_then(|ticket| self.replies.get_mut(&ticket)) {
            reply.frames += 1;
            reply.bytes += frame.bytes().len();
            let added = reply.add(&message, frame.body(), self.keep_rows);
            added.map_err(|error| illegal("its reply", error))?;
        } else if let ServerMessage::Error(error) = &message {
            self.strays.push((session, error.into()));
        }
        for &ticket in &answer.ended {
            let Some(reply) = self.replies.get_mut(&ticket) else { continue };
            reply.done = true;
            reply.shared = answer.ended.len() > 1;
            if let ServerMessage::Error(error) = &message {
                reply.error = Some(error.into());
            }
        }
        let token_done = matches!(message, ServerMessage::TokenDone(_));
        Ok(Outcome { session, to: answer.to, ended: answer.ended, token_done })
    }

    /// Returns a reply that was not taken yet.
    pub fn reply(&self, ticket: Ticket) -> Option<&Reply> {
        self.replies.get(&ticket)
    }

    /// Returns the session's oldest request whose reply was not taken yet.
    pub fn oldest(&self, session: u64) -> Option<Ticket> {
        self.order.get(&session)?.front().copied()
    }

    /// Takes a reply, whole or not.
    pub fn take(&mut self, ticket: Ticket) -> Option<Reply> {
        let reply = self.replies.remove(&ticket)?;
        if let Some(order) = self.order.get_mut(&reply.session) {
            order.retain(|&other| other != ticket);
            if order.is_empty() {
                self.order.remove(&reply.session);
            }
        }
        Some(reply)
    }

    /// The requests that are not answered yet.
    pub fn waiting(&self) -> Vec<(u64, Ticket, Asked)> {
        self.legal.waiting().collect()
    }

    /// Fatal errors beyond the requests of their session, and those of offers.
    pub fn strays(&self) -> &[(u64, Failure)] {
        &self.strays
    }
}
