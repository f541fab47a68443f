//! The in-memory bus keeps the promises that every bus makes.

#[cfg(test)]
mod after_losses;
#[cfg(test)]
mod asker;
#[cfg(test)]
mod asking_again;

async fn bed() -> rockbot_testkit::BusFixture {
    rockbot_testkit::BusFixture::memory()
}

rockbot_testkit::bus_conformance_tests!(crate::bed);
