//! The in-memory bus keeps the promises that every bus makes.

#[cfg(test)]
mod after_losses;
#[cfg(test)]
mod asker;
#[cfg(test)]
mod asking_again;

async fn bed() -> rockbot_testkit::Bed {
    rockbot_testkit::Bed::memory()
}

rockbot_testkit::bus_promises!(crate::bed);
