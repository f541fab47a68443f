//! A turn that runs: its output, its status line, and its cancellation.

use std::pin::pin;

use rockbot_contracts::{ReplyBody, user::TurnOutcome};
use rockbot_service::{Interrupt, Interrupts, exit};
use tokio::{task::JoinHandle, time::Instant};

use super::{
    Conversation, EXIT_GRACE, TurnResult, calls::CallLog, held_replies::HeldReplies,
    printer::TurnPrinter, status::StatusLine,
};
use crate::{
    approval::{self, Answered, Closing, Decided},
    failure::{Failure, OrExit},
    print::note,
    render,
};

/// The state of a turn that runs.
pub(super) struct RunningTurn<'a> {
    conversation: &'a Conversation,
    printer: TurnPrinter<'a>,
    status: StatusLine,
    /// Consumes the reply to the cancellation, once it was requested.
    cancelling: Option<JoinHandle<()>>,
    exit_requested: bool,
    /// When to stop waiting for the answer.
    pub(super) exit_at: Option<Instant>,
}

impl<'a> RunningTurn<'a> {
    pub(super) fn new(conversation: &'a Conversation) -> Self {
        let display = &conversation.display;
        Self {
            conversation,
            printer: TurnPrinter::new(display),
            status: StatusLine::new(display.model.clone(), !display.json),
            cancelling: None,
            exit_requested: false,
            exit_at: None,
        }
    }

    /// Waits until the status line changes.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(super) async fn next_frame(&mut self) {
        self.status.next_frame().await;
    }

    /// Draws the status line, unless a line of text is not complete.
    pub(super) fn draw_status(&mut self) {
        if self.printer.is_between_lines() {
            self.status.draw();
        }
    }

    /// Makes the next output start at the beginning of a line.
    pub(super) fn end_line(&mut self) -> Result<(), Failure> {
        self.status.erase();
        self.printer.end_line(&mut anstream::stdout().lock())?;
        Ok(())
    }

    /// Prints a reply, after the number of lost ones.
    pub(super) fn print(
        &mut self,
        body: &ReplyBody,
        lost: u64,
        log: &mut CallLog,
    ) -> Result<(), Failure> {
        self.status.erase();
        self.status.observe(body);
        self.printer.report_lost(lost)?;
        self.printer.print(body, log)
    }

    /// Cancels the turn, or returns `true` if it is not to be waited for any longer.
    pub(super) async fn interrupt(&mut self, interrupt: Interrupt) -> Result<bool, Failure> {
        self.status.erase();
        self.exit_requested |= interrupt == Interrupt::Leave;
        if self.cancelling.is_some() {
            self.end_line()?;
            note!("no answer yet; the turn is being cancelled and may be partly done");
            return Ok(true);
        }
        self.cancelling = Some(self.conversation.cancel().await?);
        if self.exit_requested {
            self.exit_at = Some(Instant::now() + EXIT_GRACE);
        } else if !self.conversation.display.json {
            self.end_line()?;
            note!("{}", render::dim("cancelling; press Ctrl-C again to stop waiting"));
        }
        Ok(false)
    }

    /// Asks the user for a decision, and sends it.
    pub(super) async fn decide(
        &mut self,
        body: &ReplyBody,
        replies: &mut HeldReplies,
        interrupts: &mut Interrupts,
    ) -> Result<(), Failure> {
        let (conversation, closing) = (self.conversation, Closing::default());
        let files = conversation.display.files.as_deref();
        let deciding = approval::request_decision(body, &conversation.session, files, &closing);
        match self.ask(deciding, body, replies, &closing, interrupts).await? {
            Decided::Answer(decision) => {
                let client = &conversation.client;
                let answered = client.answer_approval(&conversation.agent, &decision).await;
                answered.or_exit(exit::UNAVAILABLE)
            }
            Decided::Interrupted => self.cancel_once().await,
            Decided::Nothing => Ok(()),
        }
    }

    /// Asks the user for the input that an MCP server requests, and sends it.
    pub(super) async fn answer(
        &mut self,
        body: &ReplyBody,
        replies: &mut HeldReplies,
        interrupts: &mut Interrupts,
    ) -> Result<(), Failure> {
        let (conversation, closing) = (self.conversation, Closing::default());
        let answering = approval::request_input(body, &conversation.session, &closing);
        match self.ask(answering, body, replies, &closing, interrupts).await? {
            Answered::Answer(answer) => {
                let client = &conversation.client;
                let sent = client.answer_input(&conversation.agent, &answer).await;
                sent.or_exit(exit::UNAVAILABLE)
            }
            Answered::Interrupted => self.cancel_once().await,
            Answered::Nothing => Ok(()),
        }
    }

    /// Waits for what the user says. An interrupt closes the question, and so does a reply after which the
    /// answer is not awaited.
    async fn ask<T>(
        &mut self,
        asking: impl Future<Output = T>,
        question: &ReplyBody,
        replies: &mut HeldReplies,
        closing: &Closing,
        interrupts: &mut Interrupts,
    ) -> Result<T, Failure> {
        self.end_line()?;
        let mut asking = pin!(asking);
        let mut is_closed = false;
        loop {
            tokio::select! {
                said = &mut asking => return Ok(said),
                () = replies.hold_until_closed(question), if !is_closed => {
                    is_closed = true;
                    closing.close();
                }
                interrupt = interrupts.recv(), if self.cancelling.is_none() => {
                    closing.close();
                    let _ = self.interrupt(interrupt).await?;
                }
            }
        }
    }

    /// Cancels the turn, unless that was requested before.
    async fn cancel_once(&mut self) -> Result<(), Failure> {
        if self.cancelling.is_none() {
            let _ = self.interrupt(Interrupt::Cancel).await?;
        }
        Ok(())
    }

    /// Returns the result.
    pub(super) fn end(mut self, outcome: Option<TurnOutcome>) -> TurnResult {
        self.status.erase();
        if let Some(task) = self.cancelling {
            task.abort();
        }
        TurnResult {
            outcome,
            calls: self.printer.calls,
            exit_requested: self.exit_requested,
            usage: self.printer.usage,
        }
    }
}
