//! Deliberate mistakes that the loom models must detect.
//!
//! A model that passes says little until it was seen to fail. Therefore the lines that a model
//! checks are written as `mutant!(right, Name => wrong)`. Outside of models that is exactly
//! `right`. A test of [`mutants!`] runs a model with `wrong`, and the model has to fail.

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

/// Tests that `model` fails with `message` when mistake `Name` is made.
///
/// Each test runs in a process of its own: when loom finds a deadlock, destructors end the process.
#[cfg(all(test, loom))]
macro_rules! mutants {
    ($($test:ident: $name:ident, $model:expr, $message:expr;)*) => {$(
        #[test]
        fn $test() {
            let test = concat!(module_path!(), "::", stringify!($test));
            let mutant = $crate::sync::mutant::Mutant::$name;
            $crate::sync::mutant::must_fail(test, mutant, $message, || $model);
        }
    )*};
}

#[cfg(all(test, loom))]
pub(crate) use mutants;

#[cfg(all(test, loom))]
pub(crate) use making::{Mutant, explore, explore_up_to, is_made, must_fail};

#[cfg(all(test, loom))]
mod making {
    use std::cell::Cell;
    use std::env;
    use std::io::{self, Write as _};
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mutant {
        // Runner
        NotifyWithoutRelease,
        FinishRelaxed,
        FinishWithoutLook,
        QueueRelaxed,
        LetGoRelaxed,
        HandOverLetsGo,
        FlagForgotten,
        LookAtFlagOnly,
        FinishWithoutHold,
        EndHoldRelaxed,
        HoldsEndUntold,
        LookAtQueuedByLoad,
        AwaitHoldsRelaxed,
        WaitingOwnerUnseen,
        WaitWithoutMarks,
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
        // Watch
        EventsNotShown,
        RiseWithoutAlert,
        ShowWithoutFence,
        WatchWithoutFence,
        // Park and its users
        StuckUnchecked,
        StallShowsPermit,
        StallWakesNobody,
        StallWithoutFence,
        LeaveUnseen,
        LeaveWithoutLook,
        LeaveKeepsPermit,
        LeaveWakesNobody,
        WakeWithoutFence,
        RestWithoutFence,
        RiseWithoutFence,
        RiseKeepsWakeUp,
        EdgeKeepsWakeUp,
        RestWithoutLook,
        NoWakeBeforeStart,
        PermitLeftUnclaimed,
        RestingShowsPermit,
        StopPostsNobody,
        StopNotPassedOn,
        EndWithoutFence,
        CountedAfterStart,
        LengthWrittenUnlocked,
        // Reserve
        ReserveIgnoresRest,
        StandByWithoutLook,
        CallUncounted,
        // Draining, and waits for room and descriptors
        DrainWithoutFence,
        LookForDrainWithoutFence,
        ChangeToldWithoutLock,
        IntakeUncounted,
        IntakeLeftRelaxed,
        WaitForRoomWithoutFence,
        RoomWithoutFence,
        RoomWithoutLock,
        StarveWithoutFence,
        CloseWithoutFence,
        // Send beside a close
        LeaveAfterShut,
        SendAfterShut,
        SendNowAfterShut,
        ShutWithoutLook,
        ShutBeforeBacklog,
        LastReasonCounts,
        // Notification of a relay
        NotifyRelaxed,
        ClearBehindTheFrames,
        // Pool
        WaitWithoutLook,
        ReturnServesNobody,
        ExpiryIgnoresGrant,
        DeathServesNobody,
        PauseHandsOver,
        QuietUntold,
        OldVersionKept,
        CheckOnce,
        CloseForgets,
    }

    thread_local! {
        // Loom runs all threads of a model on the thread that called it.
        static MADE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is_made(mutant: Mutant) -> bool {
        MADE.get() == Some(mutant)
    }

    /// Runs a model in every interleaving with at most `LOOM_MAX_PREEMPTIONS`. Prints their number
    /// (visible with `--nocapture`).
    pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
        explore_up_to(usize::MAX, model);
    }

    /// Runs a model that is too large for more than `most` preemptions.
    pub(crate) fn explore_up_to(most: usize, model: impl Fn() + Send + Sync + 'static) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(2).min(most));
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            model();
        });
        let name = std::thread::current().name().map(str::to_owned);
        let runs = runs.load(Ordering::Relaxed);
        writeln!(io::stderr(), "{}: {runs} interleavings", name.unwrap_or_default())
            .expect("stderr");
    }

    /// Variable that is set in the process that makes a mistake.
    const CHILD: &str = "EPOLL_GROUP_MUTANT";

    pub(crate) fn must_fail(test: &str, mutant: Mutant, message: &str, model: impl FnOnce()) {
        if env::var_os(CHILD).is_some() {
            MADE.set(Some(mutant));
            return model();
        }
        let (_, test) = test.split_once("::").expect("the crate comes first");
        let output = Command::new(env::current_exe().expect("this test"))
            .args(["--exact", test, "--nocapture"])
            .envs([(CHILD, "1"), ("RUST_BACKTRACE", "0")])
            .output()
            .expect("runs");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "the model passes with {mutant:?}:\n{said}");
        assert!(said.contains(message), "{mutant:?} fails, but without '{message}':\n{said}");
    }
}
