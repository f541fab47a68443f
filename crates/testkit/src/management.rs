//! A client for the management API of a broker.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The time limit of one read or write.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The management API of one broker. Requests block.
#[derive(Debug, Clone)]
pub struct Management {
    login: String,
    host: String,
}

impl Management {
    /// Creates a client for `http://USER:PASSWORD@HOST:PORT`.
    ///
    /// # Errors
    /// When the URL has another form.
    pub fn new(url: &str) -> Result<Self> {
        let address = url.strip_prefix("http://").context("not an http URL")?;
        let (login, host) = address.rsplit_once('@').context("no user and password in the URL")?;
        Ok(Self { login: login.to_owned(), host: host.to_owned() })
    }

    /// Creates a client for the broker of the tests.
    ///
    /// # Errors
    /// When the environment does not name its management API.
    pub fn of_test_broker() -> Result<Self> {
        let url = std::env::var("ROCKBOT_TEST_AMQP_MANAGEMENT_URL").context(
            "this test needs the management API of its broker: run `cargo xtask test`, or set \
             ROCKBOT_TEST_AMQP_MANAGEMENT_URL to http://USER:PASSWORD@HOST:PORT",
        )?;
        Self::new(&url)
    }

    /// Returns a client of the same broker with another user.
    #[must_use]
    pub fn with_login(&self, user: &str, password: &str) -> Self {
        Self { login: format!("{user}:{password}"), host: self.host.clone() }
    }

    /// Sends one request to `/api/PATH` and returns the body of the response.
    ///
    /// # Errors
    /// When the API cannot be reached or does not reply with a status of 2xx.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream =
            TcpStream::connect(&self.host).context("the management API is unavailable")?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        write!(
            stream,
            "{method} /api/{path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Basic {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            STANDARD.encode(&self.login),
            body.len()
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let status = response.split(' ').nth(1).unwrap_or_default();
        ensure!(status.starts_with('2'), "{method} {path} failed: {response}");
        let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok(body.to_owned())
    }
}
