//! How many sessions users may have: those that are recorded, and those that wait to be stored.
//!
//! A user other than the agent's and root gets a quarter of each limit, and all of them together
//! three quarters.

use crate::requests::SessionCaller;

/// The most sessions that are recorded or wait to be stored.
pub(crate) const WAITING_MAX: usize = 256;

/// A session that is not stored yet, as limits count it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedSession {
    pub uid: u32,
    pub is_recording: bool,
}

/// Returns the number of sessions that leave no room for another one of the caller, if so. With a
/// hand-over, the new session replaces one that is recorded.
pub(crate) fn check_limits(
    sessions: &[CountedSession],
    caller: SessionCaller,
    recording_max: usize,
    is_hand_over: bool,
) -> Result<(), usize> {
    let check = |is_counted: &dyn Fn(&CountedSession) -> bool, quarters: usize| {
        let counted = || sessions.iter().filter(|session| is_counted(session));
        let recording = counted().filter(|session| session.is_recording).count();
        let recording = recording.saturating_sub(usize::from(is_hand_over));
        let recording_max = (recording_max * quarters / 4).max(1);
        match recording >= recording_max || counted().count() >= WAITING_MAX * quarters / 4 {
            true => Err(counted().count()),
            false => Ok(()),
        }
    };
    if !caller.is_owner {
        check(&|session| session.uid == caller.uid, 1)?;
        check(&|_| true, 3)?;
    }
    check(&|_| true, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts sessions of a user until one is refused; returns how many were started.
    fn fill(
        sessions: &mut Vec<CountedSession>,
        caller: SessionCaller,
        is_recording: bool,
    ) -> usize {
        let before = sessions.len();
        while check_limits(sessions, caller, 16, false).is_ok() {
            sessions.push(CountedSession {
                uid: caller.uid,
                is_recording,
            });
        }
        sessions.len() - before
    }

    fn user(uid: u32) -> SessionCaller {
        SessionCaller {
            uid,
            is_owner: false,
        }
    }

    const OWNER: SessionCaller = SessionCaller {
        uid: 0,
        is_owner: true,
    };

    #[test]
    fn a_user_has_a_quarter_of_the_sessions_and_all_leave_a_quarter_to_the_agents_user() {
        for (is_recording, max) in [(true, 16), (false, WAITING_MAX)] {
            let mut sessions = Vec::new();
            let users: Vec<usize> = (1..=4)
                .map(|uid| fill(&mut sessions, user(uid), is_recording))
                .collect();
            assert_eq!(users, [max / 4, max / 4, max / 4, 0]);
            assert_eq!(fill(&mut sessions, OWNER, is_recording), max / 4);
        }
    }

    #[test]
    fn a_user_can_replace_its_session_at_its_limit() {
        let mut sessions = Vec::new();
        fill(&mut sessions, user(1), true);
        assert_eq!(check_limits(&sessions, user(1), 16, false), Err(4));
        assert_eq!(check_limits(&sessions, user(1), 16, true), Ok(()));
        assert_eq!(check_limits(&[], user(1), 1, false), Ok(()), "at least one");
    }
}
