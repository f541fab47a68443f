//! Tests of the in-memory bus and of the requester.

#[cfg(test)]
mod panics;
#[cfg(test)]
mod publish_retries;
#[cfg(test)]
mod reconnect_retries;
#[cfg(test)]
mod responder;

async fn fixture() -> rockbot_testkit::BusFixture {
    rockbot_testkit::BusFixture::memory()
}

rockbot_testkit::bus_conformance_tests!(crate::fixture);
