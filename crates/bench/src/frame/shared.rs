//! What several steps need, such as a lab: made by the first that needs it, and made anew behind one that failed, which may have broken it.

use anyhow::Result;

/// It, while it is there.
#[derive(Debug)]
pub struct Shared<T>(Option<T>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Shared<T> {
    /// Takes a step with it, which `make` makes if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or the step fails: then it is let go.
    pub fn with<R>(
        &mut self,
        make: impl FnOnce() -> Result<T>,
        step: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R> {
        let mut it = match self.0.take() {
            Some(it) => it,
            None => make()?,
        };
        let done = step(&mut it)?;
        self.0 = Some(it);
        Ok(done)
    }

    /// Lets it go: no later step needs it.
    pub fn drop_it(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn shared_is_made_once_and_anew_behind_a_failure() {
        let (mut shared, made) = (Shared::default(), std::cell::Cell::new(0));
        let make = || {
            made.set(made.get() + 1);
            Ok(made.get())
        };
        assert_eq!(shared.with(make, |it| Ok(*it)).unwrap(), 1);
        assert_eq!(shared.with(make, |it| Ok(*it)).unwrap(), 1);
        assert!(shared.with(make, |_| -> Result<()> { bail!("a dead lab") }).is_err());
        assert_eq!(shared.with(make, |it| Ok(*it)).unwrap(), 2);
        shared.drop_it();
        assert_eq!(shared.with(make, |it| Ok(*it)).unwrap(), 3);
    }
}
