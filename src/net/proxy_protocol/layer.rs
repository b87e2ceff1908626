//! Layers that read and send a [`ProxyHeader`].

use super::super::address::Address;
use super::super::close::Close;
use super::super::connection::Connection;
use super::super::layer::{Decoded, Layer, LayerState, MakeLayer};
use super::super::read_buf::Input;
use super::header::{ProxyHeader, ProxyVersion};
use super::network::Network;

/// Maker of the layers of a listener behind proxies. Each connection must begin with a PROXY header
/// of version 1 or 2, and come from a trusted network.
pub(crate) struct AcceptHeaders(Vec<Network>);

impl AcceptHeaders {
    pub(crate) fn new(trusted: impl IntoIterator<Item = Network>) -> Self {
        Self(trusted.into_iter().collect())
    }

    fn trusts(&self, peer: &Address) -> bool {
        match peer {
            Address::Tcp(peer) => self.0.iter().any(|network| network.contains(peer.ip())),
            // The permissions of its file decide which processes connect.
            Address::Unix(_) => true,
        }
    }
}

impl MakeLayer for AcceptHeaders {
    fn make(&self, conn: &Connection) -> Result<Box<dyn Layer>, Close> {
        let peer = conn.peer_addr();
        if self.trusts(peer) {
            return Ok(Box::new(Accept { client: None }));
        }
        Err(format!("PROXY header: {peer} is in no trusted network").into())
    }
}

struct Accept {
    client: Option<Address>,
}

impl Layer for Accept {
    fn received(
        &mut self,
        conn: &Connection,
        input: &mut Input<'_>,
        _: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        let Some((header, length)) = ProxyHeader::parse(input.bytes()).map_err(Close::error)?
        else {
            return Ok(LayerState::Handshaking);
        };
        input.consume(length);
        if let ProxyHeader::Proxied { client, .. } = &header {
            self.client = Some(client.clone());
        }
        // The extension is there already if this is the second such layer. The first header counts.
        let _ = conn.set_extension(header);
        Ok(LayerState::Done)
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }

    fn client_addr(&self) -> Option<Address> {
        self.client.clone()
    }
}

/// Maker of the layer of an outgoing connection that begins with a PROXY header.
pub(crate) struct SendHeader(Vec<u8>);

impl SendHeader {
    pub(crate) fn new(version: ProxyVersion, header: &ProxyHeader) -> Self {
        Self(header.encode(version))
    }
}

impl MakeLayer for SendHeader {
    fn make(&self, _: &Connection) -> Result<Box<dyn Layer>, Close> {
        Ok(Box::new(Send(self.0.clone())))
    }
}

struct Send(Vec<u8>);

impl Layer for Send {
    fn start(&mut self, _: &Connection, answer: &mut Vec<u8>) -> Result<LayerState, Close> {
        answer.append(&mut self.0);
        Ok(LayerState::Done)
    }

    fn received(
        &mut self,
        _: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        _: &mut Vec<u8>,
    ) -> Result<LayerState, Close> {
        decoded.push(input.take_all());
        Ok(LayerState::Done)
    }

    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
        encoded.extend_from_slice(bytes);
        Ok(())
    }
}
