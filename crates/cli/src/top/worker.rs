//! A thread that asks the daemon, so that keys are served while an answer is late. It sleeps while nothing is asked.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

/// The thread, which takes questions `Q` and gives answers `A`. It ends after the question that it is at when this is dropped.
#[derive(Debug)]
pub(crate) struct Worker<Q, A> {
    questions: Sender<Q>,
    answers: Receiver<A>,
    wake: UnixStream,
}

/// The thread has ended, which it does of itself only by a panic.
#[derive(Debug)]
pub(crate) struct Ended;

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// Starts the thread, which has `serve` give any number of answers to each question.
    ///
    /// # Errors
    /// The kernel gives us no thread or socket pair.
    pub(crate) fn start(
        name: &str,
        mut serve: impl FnMut(Q, &mut dyn FnMut(A)) + Send + 'static,
    ) -> io::Result<Self> {
        let (wake, mut ring) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        let (questions, asked) = channel();
        let (give, answers) = channel();
        let mut answer = move |answer| {
            let _ = give.send(answer);
            // A full pipe wakes as well as one more byte.
            let _ = ring.write(&[1]);
        };
        let run = move || asked.iter().for_each(|question| serve(question, &mut answer));
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { questions, answers, wake })
    }

    /// Asks.
    pub(crate) fn ask(&self, question: Q) -> Result<(), Ended> {
        self.questions.send(question).map_err(|_| Ended)
    }

    /// Readable when there are answers.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The answers that have come.
    pub(crate) fn answers(&mut self) -> Result<Vec<A>, Ended> {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(count) if count > 0) {}
        let mut all = Vec::new();
        loop {
            match self.answers.try_recv() {
                Ok(answer) => all.push(answer),
                Err(TryRecvError::Empty) => return Ok(all),
                Err(TryRecvError::Disconnected) if !all.is_empty() => return Ok(all),
                Err(TryRecvError::Disconnected) => return Err(Ended),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn wait<Q: Send + 'static, A: Send + 'static>(worker: &Worker<Q, A>) {
        poll(&mut [PollFd::from_borrowed_fd(worker.event_fd(), PollFlags::IN)], None).expect("poll");
    }

    #[test]
    fn worker_answers_what_it_is_asked_and_says_so() {
        let serve = |question: u32, answer: &mut dyn FnMut(u32)| (0..question).for_each(answer);
        let mut worker = Worker::start("test", serve).expect("started");
        assert!(worker.answers().expect("alive").is_empty());
        worker.ask(3).expect("alive");
        let mut all = Vec::new();
        while all.len() < 3 {
            wait(&worker);
            all.extend(worker.answers().expect("alive"));
        }
        assert_eq!(all, [0, 1, 2]);
    }

    #[test]
    fn worker_that_ended_is_noticed() {
        let serve = |(): (), _: &mut dyn FnMut(())| panic!("as planned");
        let mut worker = Worker::start("test", serve).expect("started");
        worker.ask(()).expect("alive");
        // Its end of the pair is closed.
        wait(&worker);
        while worker.answers().is_ok() {
            thread::yield_now();
        }
        assert!(worker.ask(()).is_err());
    }
}
