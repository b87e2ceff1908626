//! Mistakes on purpose: what the loom models must notice.
//!
//! A model that passes says little until it was seen to fail. So the lines that a model is about are
//! written as `mutant!(right, Name => wrong)`: outside of models that is `right` and nothing else; a
//! model that is run by [`making`] gets `wrong`, and has to panic.

#[cfg(not(all(test, loom)))]
macro_rules! mutant {
    ($right:expr, $name:ident => $wrong:expr) => {
        $right
    };
}

#[cfg(all(test, loom))]
macro_rules! mutant {
    ($right:expr, $name:ident => $wrong:expr) => {
        if $crate::sync::mutant::is_made($crate::sync::mutant::Mutant::$name) {
            $wrong
        } else {
            $right
        }
    };
}

pub(crate) use mutant;

#[cfg(all(test, loom))]
pub(crate) use making::{Mutant, is_made, making};

#[cfg(all(test, loom))]
mod making {
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mutant {
        // Runner
        NotifyWithoutRelease,
        FinishRelaxed,
        FinishWithoutLook,
        QueueRelaxed,
        FlagForgotten,
        LookAtFlagOnly,
        // Slots
        PinIgnoresVersion,
        PinRevives,
        PinRelaxed,
        InsertRelaxed,
        ReleaseRelaxed,
        // Alarm
        ArmAfterUnlock,
        ArmedIsKept,
        LaterIsKept,
        // Park
        WakeWithoutFence,
        RestWithoutFence,
        RiseWithoutFence,
        RiseKeepsWakeUp,
        EdgeKeepsWakeUp,
        RestWithoutLook,
        NoWakeBeforeStart,
        PermitLeftUnclaimed,
        WaiterShowsPermit,
        StopWakesOne,
        StopNotPassedOn,
    }

    thread_local! {
        // Loom runs all threads of a model on the thread that called it.
        static MADE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is_made(mutant: Mutant) -> bool {
        MADE.get() == Some(mutant)
    }

    /// Runs a model with one mistake in the code.
    pub(crate) fn making(mutant: Mutant, model: impl FnOnce()) {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                MADE.set(None);
            }
        }
        MADE.set(Some(mutant));
        let _reset = Reset;
        model();
    }
}
