//! The sessions of an agent: starts, continues and ends them on request, and continues those of an
//! earlier agent. Each is a numbered directory below `sessions` in the agent's directory.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_machine::MachineFiles;
use pegel_metric::{Clock, Millis, with_causes};
use pegel_record::RecordSamples;
use pegel_store::Store;
use pegel_supervisor::{RestartedThread, Supervisor};

use crate::description::{RequestedEnd, SessionDescription, SessionDir, SessionEndReason};
use crate::identity::path_component;
use crate::recorder::Recorder;
use crate::requests::{
    CredentialsRequest, SessionCaller, SessionError, SessionStatus, StartRequest, StopRequest,
};
use crate::sample_source::SampleSource;
use crate::session::Session;
use crate::session_limits::{CountedSession, check_limits};
use crate::session_record::SessionRecord;
use crate::settings::SessionSettings;
use crate::storage::{RecordPlace, StorageCredentials, StorageEndpoints};
use crate::task::{TaskCheckpoint, TaskPeaks, TaskScope, TaskWatch};
use crate::upload::UploadStatus;

/// The slot of a session that names none.
pub const DEFAULT_SLOT: &str = "default";
/// How long a request waits for the recorder to write the end or a flush.
const RECORDER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most stored sessions that are listed, and whose records cannot be started again.
const STORED_MAX: usize = 64;
const DIR_NUMBER_MAX: u64 = 1 << 40;

/// The functions of the agent that sessions use.
pub trait SessionHost: fmt::Debug + Send + Sync {
    /// Returns the description of this machine as JSON; `None` before the first one.
    fn snapshot(&self) -> Option<Arc<str>>;

    /// Takes a sample of everything now; returns when readers of the store see it, or after a short
    /// time.
    fn sample_now(&self);

    /// Describes events that the cloud has scheduled for this machine, such as an eviction.
    fn scheduled_events(&self) -> Vec<String>;
}

/// The settings and services that all sessions of an agent share.
#[derive(Debug)]
pub struct SessionContext {
    /// The directory of all sessions.
    pub dir: PathBuf,
    pub node: String,
    pub version: String,
    pub settings: SessionSettings,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub supervisor: Supervisor,
    pub host: Arc<dyn SessionHost>,
    /// The root of `/proc` and `/sys`.
    pub root: PathBuf,
    /// Whether the agent cannot outlive the task: its records then end when it stops.
    pub ends_with_agent: bool,
}

impl SessionContext {
    pub(crate) fn source(&self) -> SampleSource {
        SampleSource {
            store: self.store.clone(),
            patterns: self.settings.names.clone().into(),
        }
    }

    /// Refuses what a user other than the agent's may not have the agent do with its rights: write
    /// files, use the identity of the machine, read files, watch processes of others.
    fn check_other_user(
        &self,
        caller: SessionCaller,
        request: &StartRequest,
    ) -> Result<(), SessionError> {
        if !self.settings.permits_other_users(&request.to) {
            return Err(SessionError::NotPermitted);
        }
        if request.endpoints.metadata.is_some() || request.endpoints.ca_file.is_some() {
            return Err(SessionError::BadRequest(
                "only the agent's user may set --metadata and --ca-file".to_owned(),
            ));
        }
        check_own_credentials(
            request.credentials.as_ref(),
            &request.to,
            &request.endpoints,
        )?;
        let owner = request.pid.and_then(|pid| {
            let process = fs::metadata(self.root.join("proc").join(pid.to_string()));
            process.ok().map(|process| process.uid())
        });
        match owner {
            Some(uid) if uid != caller.uid => Err(SessionError::BadRequest(
                "the process of the task belongs to another user".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Continues to watch a task.
    pub(crate) fn resume_watch(&self, checkpoint: TaskCheckpoint) -> Option<TaskWatch> {
        let machine = MachineFiles::at(&self.root);
        let watch = TaskWatch::resume(machine, checkpoint);
        let watch = watch.inspect_err(|error| {
            tracing::warn!(%error, "cannot watch the task of a session");
        });
        watch.ok()
    }

    /// Starts to watch the task of a process; `None` if there is no such process. A cgroup that a
    /// task in `others` has too is not counted as the task's own.
    fn start_watch(&self, pid: u32, others: &[TaskCheckpoint]) -> Option<TaskCheckpoint> {
        let machine = MachineFiles::at(&self.root);
        let mut scope = TaskScope::of_process(&machine, pid)?;
        let mut others = others.iter().map(|other| other.scope().own_cgroup());
        if scope.own_cgroup().is_some() && others.any(|other| other == scope.own_cgroup()) {
            scope.disown_cgroups();
        }
        let watch = TaskWatch::start(machine, scope, self.clock.utc()).ok()?;
        Some(watch.checkpoint())
    }
}

/// A session that records, for the metrics of the agent.
#[derive(Debug, Clone)]
pub struct SlotRecording {
    pub slot: String,
    /// The name of the user.
    pub user: String,
    pub upload: Option<UploadStatus>,
    pub recorded_until: Option<Millis>,
    /// What the task used so far, if it is known.
    pub peaks: Option<TaskPeaks>,
}

/// All sessions of an agent.
#[derive(Debug)]
pub struct SessionManager {
    context: Arc<SessionContext>,
    /// In the order of their directories. Never locked while files are read or changed: the sampler
    /// locks it.
    sessions: Mutex<Vec<Arc<Session>>>,
    threads: Mutex<Vec<RestartedThread>>,
    /// Held while a session is started or ended: a slot has one session at a time.
    changing: Mutex<()>,
    is_stopping: AtomicBool,
}

impl SessionManager {
    /// Continues the sessions of an earlier agent. Directories that cannot be read are logged and
    /// kept.
    pub fn open(context: SessionContext) -> SessionManager {
        let manager = SessionManager {
            context: Arc::new(context),
            sessions: Mutex::default(),
            threads: Mutex::default(),
            changing: Mutex::new(()),
            is_stopping: AtomicBool::new(false),
        };
        for dir in manager.session_dirs() {
            if let Err(error) = manager.resume(dir.clone()) {
                let dir = dir.display().to_string();
                tracing::error!(dir, error, "cannot continue a session; its files are kept");
            }
        }
        manager
    }

    fn session_dirs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.context.dir).into_iter().flatten();
        let mut dirs: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| dir_number(path).is_some())
            .collect();
        dirs.sort_unstable();
        dirs
    }

    fn resume(&self, path: PathBuf) -> Result<(), String> {
        let dir = SessionDir::existing(path);
        let description = dir.read_description().map_err(|error| error.to_string())?;
        let bytes_max = self.context.settings.spool_bytes.count();
        let record = SessionRecord::open(&dir.spool(), bytes_max);
        let record = record.map_err(|error| with_causes(&error))?;
        let is_stored = description.is_stored;
        let session = Arc::new(Session::new(self.context.clone(), dir, description, record));
        self.sessions.lock().push(session.clone());
        match is_stored {
            // An earlier agent was killed while it removed the spool.
            true => session
                .dir
                .remove_spool()
                .map_err(|error| error.to_string()),
            false => self
                .start_threads(&session)
                .map_err(|error| error.to_string()),
        }
    }

    fn start_threads(&self, session: &Arc<Session>) -> io::Result<()> {
        let supervisor = &self.context.supervisor;
        let mut threads = Vec::new();
        if !session.read(|shared| shared.is_ended) {
            let recorded = session.clone();
            let thread = supervisor.thread("session-record");
            threads.push(thread.restarted(move || Recorder::new(&recorded).run())?);
        }
        let uploaded = session.clone();
        let thread = supervisor.thread("session-upload");
        threads.push(thread.restarted(move || uploaded.upload())?);
        let mut running = self.threads.lock();
        running.retain(|thread| !thread.has_ended());
        running.append(&mut threads);
        Ok(())
    }

    /// Starts a session. The same identity in the slot continues its session; another identity ends
    /// that session first. Returns once the first block is on the disk, with whether the session is
    /// new.
    pub fn start(
        &self,
        caller: SessionCaller,
        request: &StartRequest,
    ) -> Result<(SessionStatus, bool), SessionError> {
        let slot = slot_name(request.slot.as_deref())?;
        let identity = request.identity();
        if !caller.is_owner {
            self.context.check_other_user(caller, request)?;
        }
        let _changing = self.changing.lock();
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err(SessionError::Stopping);
        }
        let active = self.active_in_slot(caller.uid, &slot);
        if let Some(active) = &active {
            let description = active.read(|shared| shared.description.clone());
            if description.identity == identity && description.place == request.to {
                self.renew(active, request.credentials.as_ref())?;
                return Ok((active.status(), false));
            }
        }
        self.check_admission(
            caller,
            &request.to.join(&identity.folder()).to_string(),
            active.is_some(),
        )?;
        if let Some(active) = active {
            self.end(&active, SessionEndReason::HandOver, None);
        }
        self.context.host.sample_now();
        let source = self.context.source();
        let (begin, first_samples) = source.session_start(&*self.context.clock);
        let others = self.watched_tasks();
        let permitted_directory = match &request.to {
            RecordPlace::Directory(dir) if !caller.is_owner => {
                self.context.settings.permitted_directory(dir)
            }
            _ => None,
        };
        let description = SessionDescription {
            uid: caller.uid,
            slot,
            identity,
            place: request.to.clone(),
            permitted_directory: permitted_directory.map(Path::to_owned),
            endpoints: request.endpoints.clone(),
            begin,
            task: { request.pid }.and_then(|pid| self.context.start_watch(pid, &others)),
            task_end: None,
            task_exit: None,
            requested_end: None,
            is_stored: false,
        };
        let session = self
            .create(description, request, first_samples)
            .map_err(|error| SessionError::Failed(format!("cannot start the session: {error}")))?;
        Ok((session.status(), true))
    }

    /// Returns the tasks that are recorded now.
    fn watched_tasks(&self) -> Vec<TaskCheckpoint> {
        let sessions = self.sessions.lock();
        let active = sessions.iter().filter(|one| one.is_recording());
        active
            .filter_map(|one| one.read(|shared| shared.description.task.clone()))
            .collect()
    }

    /// Fails if the agent has this record already, or if there are too many sessions.
    fn check_admission(
        &self,
        caller: SessionCaller,
        folder: &str,
        is_hand_over: bool,
    ) -> Result<(), SessionError> {
        let statuses = self.sessions.lock();
        let mut statuses: Vec<SessionStatus> = statuses.iter().map(|one| one.status()).collect();
        let is_own = |status: &SessionStatus| status.uid == caller.uid;
        if statuses.iter().any(|one| is_own(one) && one.to == folder) {
            return Err(SessionError::RecordEnded(folder.to_owned()));
        }
        statuses.retain(|status| !status.is_stored());
        let counted: Vec<CountedSession> = { statuses.iter() }
            .map(|status| CountedSession {
                uid: status.uid,
                is_recording: status.end.is_none(),
            })
            .collect();
        let recording_max = usize::from(self.context.settings.sessions);
        check_limits(&counted, caller, recording_max, is_hand_over).map_err(SessionError::TooMany)
    }

    /// Creates the files and the first blocks of a session, and starts its threads. On failure
    /// nothing is left.
    fn create(
        &self,
        description: SessionDescription,
        request: &StartRequest,
        first_samples: Vec<RecordSamples>,
    ) -> Result<Arc<Session>, String> {
        let number = self
            .session_dirs()
            .iter()
            .filter_map(|dir| dir_number(dir))
            .max();
        let name = format!("{:08}", number.map_or(1, |number| number + 1));
        let dir = SessionDir::create(self.context.dir.join(name));
        let dir = dir.map_err(|error| format!("{}: {error}", self.context.dir.display()))?;
        let created = self.create_in(dir.clone(), description, request, first_samples);
        if created.is_err() {
            // Best effort: without a description the directory is not a session.
            let _ = dir.remove();
        }
        created
    }

    fn create_in(
        &self,
        dir: SessionDir,
        description: SessionDescription,
        request: &StartRequest,
        first_samples: Vec<RecordSamples>,
    ) -> Result<Arc<Session>, String> {
        let text = |error: io::Error| error.to_string();
        let credentials = request.credentials.clone().unwrap_or_default();
        let credentials = credentials.for_place(&description.place);
        dir.write_credentials(&credentials).map_err(text)?;
        dir.write_description(&description).map_err(text)?;
        let bytes_max = self.context.settings.spool_bytes.count();
        let record = SessionRecord::open(&dir.spool(), bytes_max);
        let record = record.map_err(|error| with_causes(&error))?;
        let session = Session::new(self.context.clone(), dir, description, record);
        let session = Arc::new(session);
        let begun = Recorder::new(&session).begin(first_samples);
        begun.map_err(|error| with_causes(&error))?;
        self.start_threads(&session).map_err(text)?;
        self.sessions.lock().push(session.clone());
        self.remove_oldest_stored();
        Ok(session)
    }

    /// Removes the oldest sessions whose records are stored.
    fn remove_oldest_stored(&self) {
        self.remove_oldest_stored_with(&SessionDir::remove);
    }

    /// Like [`remove_oldest_stored`](SessionManager::remove_oldest_stored), with the function that
    /// removes the files: without the lock, which the sampler takes.
    fn remove_oldest_stored_with(&self, remove: &dyn Fn(&SessionDir) -> io::Result<()>) {
        for session in self.take_oldest_stored() {
            if let Err(error) = remove(&session.dir) {
                let dir = session.dir.path().display().to_string();
                tracing::warn!(dir, %error, "cannot remove the files of a stored session");
            }
        }
    }

    /// Takes the oldest sessions whose records are stored out of the list.
    fn take_oldest_stored(&self) -> Vec<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        let is_stored = |one: &Arc<Session>| one.read(|shared| shared.description.is_stored);
        let stored = sessions.iter().filter(|one| is_stored(one)).count();
        let mut excess = stored.saturating_sub(STORED_MAX);
        let is_taken = |one: &mut Arc<Session>| {
            let is_taken = excess > 0 && is_stored(one);
            excess -= usize::from(is_taken);
            is_taken
        };
        sessions.extract_if(.., is_taken).collect()
    }

    fn active_in_slot(&self, uid: u32, slot: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock();
        let mut in_slot = sessions.iter().filter(|one| one.is_in_slot(uid, slot));
        in_slot.find(|one| one.is_recording()).cloned()
    }

    /// Ends a session and waits for the end of its record. Returns whether that is on the disk.
    fn end(&self, session: &Session, reason: SessionEndReason, exit_status: Option<i32>) -> bool {
        let time = self.context.clock.utc();
        let end = RequestedEnd {
            reason,
            time,
            exit_status,
        };
        if let Err(error) = session.request_end(end.clone()) {
            tracing::warn!(%error, "cannot write the end of a session to its description");
            // The recorder ends the record anyway.
            session.update(|shared| shared.description.requested_end = Some(end));
        }
        session.wait_until(Instant::now() + RECORDER_TIMEOUT, |shared| shared.is_ended)
    }

    /// Ends the session of a slot.
    pub fn stop(
        &self,
        caller: SessionCaller,
        request: &StopRequest,
    ) -> Result<SessionStatus, SessionError> {
        let slot = slot_name(request.slot.as_deref())?;
        let _changing = self.changing.lock();
        let session = self.active_in_slot(caller.uid, &slot);
        let session = session.ok_or(SessionError::NoSession(slot))?;
        match self.end(&session, SessionEndReason::Stop, request.exit_status) {
            true => Ok(session.status()),
            false => Err(SessionError::NotEnded(
                { session.status().problem }.unwrap_or_else(|| "the disk is slow".to_owned()),
            )),
        }
    }

    /// Renews the credentials of the sessions of a slot, those that have ended included.
    pub fn set_credentials(
        &self,
        caller: SessionCaller,
        request: &CredentialsRequest,
    ) -> Result<Vec<SessionStatus>, SessionError> {
        let slot = slot_name(request.slot.as_deref())?;
        let mut sessions = self.sessions.lock().clone();
        sessions.retain(|one| one.is_in_slot(caller.uid, &slot) && !one.status().is_stored());
        if sessions.is_empty() {
            return Err(SessionError::NoSession(slot));
        }
        for session in &sessions {
            let description = session.read(|shared| shared.description.clone());
            let (place, endpoints) = (&description.place, &description.endpoints);
            if !caller.is_owner {
                check_own_credentials(Some(&request.credentials), place, endpoints)?;
            }
            self.renew(session, Some(&request.credentials))?;
        }
        Ok(sessions.iter().map(|one| one.status()).collect())
    }

    fn renew(
        &self,
        session: &Session,
        credentials: Option<&StorageCredentials>,
    ) -> Result<(), SessionError> {
        let Some(credentials) = credentials else {
            return Ok(());
        };
        let place = session.read(|shared| shared.description.place.clone());
        let written = session
            .dir
            .write_credentials(&credentials.for_place(&place));
        written.map_err(|error| {
            SessionError::Failed(format!(
                "cannot store the credentials of the session: {error}"
            ))
        })?;
        session.update(|shared| shared.credentials_version += 1);
        Ok(())
    }

    /// Returns the sessions that the caller may see, the newest last.
    pub fn statuses(&self, caller: SessionCaller) -> Vec<SessionStatus> {
        let sessions = self.sessions.lock().clone();
        let statuses = sessions.iter().map(|one| one.status());
        statuses
            .filter(|status| caller.is_owner || status.uid == caller.uid)
            .collect()
    }

    /// Returns the time by the clock of the sessions.
    pub fn now(&self) -> Millis {
        self.context.clock.utc()
    }

    /// Returns the sessions that record. Never waits for the disk: the sampler calls it.
    pub fn recordings(&self) -> Vec<SlotRecording> {
        let sessions = self.sessions.lock().clone();
        let recording = sessions.iter().filter(|one| one.is_recording());
        let recordings = recording.map(|one| {
            one.read(|shared| SlotRecording {
                slot: shared.description.slot.clone(),
                user: one.user.clone(),
                upload: shared.upload.clone(),
                recorded_until: shared.recorded_until,
                peaks: shared.peaks.clone(),
            })
        });
        recordings.collect()
    }

    /// Writes everything up to now to the spools. Returns whether all recorders did so in time.
    pub fn flush(&self) -> bool {
        let sessions = self.sessions.lock().clone();
        let active = sessions.iter().filter(|one| one.is_recording());
        // All of them are flushed, even if one fails.
        let late = active.filter(|one| !one.flush(RECORDER_TIMEOUT));
        late.count() == 0
    }

    /// Writes everything to the spools and stores as much as the configured time permits. Ends the
    /// records if the agent cannot outlive their tasks.
    pub fn stop_all(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + self.context.settings.stop_timeout.duration();
        let sessions = self.sessions.lock().clone();
        let time = self.context.clock.utc();
        for session in &sessions {
            if self.context.ends_with_agent
                && let Err(error) = session.request_end(RequestedEnd {
                    reason: SessionEndReason::AgentStopped,
                    time,
                    exit_status: None,
                })
            {
                tracing::warn!(%error, "cannot write the end of a session to its description");
            }
            session.update(|shared| shared.stop_at = Some(deadline));
        }
        for session in &sessions {
            session.wait_until(deadline, |shared| {
                let is_done = shared.description.is_stored || shared.has_upload_stopped;
                is_done && shared.has_recorder_stopped
            });
        }
        // A thread that still waits for its storage ends with the process.
        self.threads.lock().clear();
    }
}

impl SessionStatus {
    fn is_stored(&self) -> bool {
        self.state == crate::requests::SessionState::Stored
    }
}

/// Refuses a request of another user without credentials: the agent would use its own identity.
fn check_own_credentials(
    credentials: Option<&StorageCredentials>,
    place: &RecordPlace,
    endpoints: &StorageEndpoints,
) -> Result<(), SessionError> {
    let has = |name: fn(&StorageCredentials) -> bool| credentials.is_some_and(name);
    let is_complete = match place {
        RecordPlace::AzureBlob { .. } => {
            has(|one| one.azure_key.is_some() || one.azure_sas_token.is_some())
        }
        RecordPlace::S3 { .. } => has(|one| one.aws_access_key_id.is_some()),
        RecordPlace::Google { .. } => {
            has(|one| one.google_service_account.is_some()) || endpoints.endpoint.is_some()
        }
        RecordPlace::Directory(_) => true,
    };
    match is_complete {
        true => Ok(()),
        false => Err(SessionError::BadRequest(format!(
            "no credentials for {place} in the environment; only the agent's user may use the \
             identity of the machine"
        ))),
    }
}

/// Returns the number of a session's directory. Names that are no numbers of ours are ignored.
fn dir_number(path: &Path) -> Option<u64> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    (number < DIR_NUMBER_MAX).then_some(number)
}

fn slot_name(slot: Option<&str>) -> Result<String, SessionError> {
    let slot = slot.unwrap_or(DEFAULT_SLOT);
    let name = path_component(slot);
    if name != slot || name.is_empty() {
        return Err(SessionError::BadRequest(format!(
            "{slot:?} is not a slot: use letters, digits and - _ . + @, at most 120"
        )));
    }
    Ok(name)
}

/// Whether a directory of sessions has one with this identity that was not ended, of any agent.
pub fn is_recorded_in(dir: &Path, identity: &crate::SessionIdentity) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut descriptions =
        entries.filter_map(|entry| SessionDir::existing(entry.path()).read_description().ok());
    descriptions.any(|one| one.identity == *identity && one.requested_end.is_none())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use pegel_metric::SystemClock;
    use pegel_store::StoreOptions;
    use pegel_testkit::TempDir;

    use super::*;
    use crate::identity::SessionIdentity;

    #[derive(Debug)]
    struct IdleHost;

    impl SessionHost for IdleHost {
        fn snapshot(&self) -> Option<Arc<str>> {
            None
        }

        fn sample_now(&self) {}

        fn scheduled_events(&self) -> Vec<String> {
            Vec::new()
        }
    }

    fn manager(dir: &TempDir) -> SessionManager {
        SessionManager::open(SessionContext {
            dir: dir.join("sessions"),
            node: "n1".to_owned(),
            version: "1.2.3".to_owned(),
            settings: SessionSettings::default(),
            store: Store::open(StoreOptions::new(dir.join("store"))).expect("a store"),
            clock: Arc::new(SystemClock),
            supervisor: Supervisor::default(),
            host: Arc::new(IdleHost),
            root: "/".into(),
            ends_with_agent: false,
        })
    }

    fn add_stored(manager: &SessionManager, number: usize) {
        let dir = manager.context.dir.join(format!("{number:08}"));
        let dir = SessionDir::create(dir).expect("made");
        let record = SessionRecord::open(&dir.spool(), 1 << 20).expect("a record");
        let description = SessionDescription {
            uid: 7,
            slot: DEFAULT_SLOT.to_owned(),
            identity: SessionIdentity {
                workflow: "w".to_owned(),
                task: number.to_string(),
                attempt: "1".to_owned(),
            },
            place: RecordPlace::Directory("/records".into()),
            permitted_directory: None,
            endpoints: StorageEndpoints::default(),
            begin: 1_000,
            task: None,
            task_end: None,
            task_exit: None,
            requested_end: None,
            is_stored: true,
        };
        let session = Session::new(manager.context.clone(), dir, description, record);
        manager.sessions.lock().push(Arc::new(session));
    }

    #[test]
    fn the_sampler_does_not_wait_while_files_of_sessions_are_removed() {
        let dir = TempDir::new();
        let manager = Arc::new(manager(&dir));
        (0..STORED_MAX + 2).for_each(|number| add_stored(&manager, number));
        let removed = Mutex::new(Vec::new());
        manager.remove_oldest_stored_with(&|session_dir| {
            let (read, answered) = mpsc::channel();
            let of_sampler = manager.clone();
            thread::spawn(move || {
                let owner = SessionCaller {
                    uid: 0,
                    is_owner: true,
                };
                let statuses = of_sampler.statuses(owner).len();
                let _ = read.send((statuses, of_sampler.recordings().len()));
            });
            let seen = answered.recv_timeout(Duration::from_secs(20));
            let number = dir_number(session_dir.path());
            removed.lock().push((number, seen));
            session_dir.remove()
        });
        let seen = Ok((STORED_MAX, STORED_MAX));
        let expected = [(Some(0), seen), (Some(1), seen)];
        assert_eq!(removed.into_inner(), expected, "a reader waited");
        let left = manager.session_dirs();
        assert_eq!(left.len(), STORED_MAX);
        assert_eq!(dir_number(&left[0]), Some(2));
    }
}
