//! The daemon.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use clap::Parser;
use kams_agent::admin::{AdminServer, Backend, Feed, Limits, MetricsServer, group_id, patiently};
use kams_agent::alone::Alone;
use kams_agent::config::{self, Config, LogFormat, Sources};
use kams_agent::engine::backend::DaemonBackend;
use kams_agent::engine::backend::calls::Ingest;
use kams_agent::engine::counter::Counter;
use kams_agent::engine::counter::tokenizer::{self, Tokenizer};
use kams_agent::engine::enforce::{Enforcement, RelaySink};
use kams_agent::engine::judge::Judge;
use kams_agent::engine::judging::Judging;
use kams_agent::engine::live::Live;
use kams_agent::engine::registry::Registry;
use kams_agent::engine::relays::Pool;
use kams_agent::engine::verdict::{Effect, Relays};
use kams_agent::engine::waste::worker;
use kams_agent::engine::{Command, Engine, EngineError, Shared};
use kams_agent::fatal::EndsAll;
use kams_agent::policy_file::PolicySource;
use kams_agent::policy_file::in_force::PolicyInForce;
use kams_agent::policy_file::watch::watch_policy;
use kams_agent::telemetry::quota::Quota;
use kams_agent::telemetry::sender::Senders;
use kams_agent::telemetry::{self, Receiver};
use kams_agent::{salt, watchdog};
use kams_export::metrics::{LabelLimits, Metrics};
use kams_export::view::Time;
use kams_policy::Policy;
use kams_relay::HolderClient;
use kams_store::{Retention, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Watches the MCP traffic of every agent on this host.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Read this configuration file instead of /etc/kams (it may then belong to you instead of root).
    #[arg(long)]
    config: Option<PathBuf>,
    /// Read this policy instead of /etc/kams/policy.yaml (it may then belong to you instead of root).
    #[arg(long)]
    policy: Option<PathBuf>,
    /// Check the configuration, print what it says, and end.
    #[arg(long)]
    check_config: bool,
    /// Let go what a daemon which has died has left: processes held at their start, and servers cut off the network
    /// (unless a service manager says by SERVICE_RESULT that kamsd failed and is to follow). For service managers.
    #[arg(long)]
    heal: bool,
    /// With --heal: servers stay cut off, because kamsd starts now.
    #[arg(long, requires = "heal")]
    keep_blocks: bool,
    /// Watch this host; otherwise, watch over the process that does.
    #[arg(long, hide = true)]
    worker: bool,
    /// Count the tokens of JSON texts on standard input, one a line.
    #[arg(long, hide = true)]
    count_tokens: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.count_tokens {
        return match tokenizer::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        };
    }
    let sources = arguments.config.map_or_else(Sources::installed, Sources::file);
    if arguments.check_config {
        return check(&sources);
    }
    if arguments.heal {
        // What a refused configuration would have said is not known; the usual place is healed.
        let config = config::load(&sources).map(|loaded| loaded.config);
        watchdog::heal_after(&config.unwrap_or_default(), arguments.keep_blocks);
        return ExitCode::SUCCESS;
    }
    if !arguments.worker {
        return match config::load(&sources) {
            Ok(loaded) => watchdog::watch(&loaded.config),
            Err(problems) => {
                complain(&format!("kamsd: {problems}"));
                ExitCode::from(2)
            }
        };
    }
    // It was started through /proc, whose name for it says nothing.
    let _no_name_no_matter = rustix::thread::set_name(c"kamsd");
    let policy = arguments
        .policy
        .map_or_else(PolicySource::installed, PolicySource::file);
    match run(&sources, &policy) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("kamsd: {error:#}"));
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stdout, reason = "the answer to --check-config")]
fn check(sources: &Sources) -> ExitCode {
    match config::check(sources) {
        Ok(listing) => {
            println!("{listing}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            complain(&problems.to_string());
            ExitCode::from(2)
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "before and after the log is there, this is the way to the person"
)]
fn complain(text: &str) {
    eprintln!("{text}");
}

fn run(sources: &Sources, policy: &PolicySource) -> Result<()> {
    // Before anything is read that a dump could hold.
    kams_host::memory::keep_from_disk().context("core dumps cannot be switched off")?;
    let loaded = config::load(sources)?;
    // Held until this process ends: whoever comes must know that it lives, with or without its parent.
    let _alone = Alone::join(&loaded.config.state_dir)?;
    let policy = &policy.clone().with_mode(match loaded.config.mode {
        config::Mode::Enforce => kams_policy::Mode::Enforce,
        _ => kams_policy::Mode::Observe,
    });
    let rules = policy.load()?;
    start_log(&loaded.config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(serve(loaded.config, rules, sources, policy));
    // A question to a stuck name service must not hold the end.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}

fn start_log(log: &config::Log) {
    // At its debug level the loader tells of every relocation.
    let filter = tracing_subscriber::EnvFilter::new(format!("{},aya=warn,aya_obj=warn", log.level));
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match log.format {
        LogFormat::Json => logger.json().init(),
        LogFormat::Text => logger
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
    }
}

async fn serve(config: Config, rules: Policy, sources: &Sources, policy: &PolicySource) -> Result<()> {
    let mut parent = watchdog::Parent::take()?;
    let started = Time::now();
    #[expect(clippy::cast_precision_loss, reason = "a gauge in seconds")]
    let start_seconds = started.unix_nanos() as f64 / 1e9;
    let labels = LabelLimits {
        servers: config.metrics.max_servers,
        tools: config.metrics.max_tools,
    };
    let commit = option_env!("KAMS_COMMIT").unwrap_or("unknown");
    let metrics = Arc::new(Metrics::new(
        env!("CARGO_PKG_VERSION"),
        commit,
        start_seconds,
        labels,
    )?);
    let instance = format!("{:x}-{:x}", started.unix_nanos(), std::process::id());
    let feed = Feed::new(config.events, instance.clone());
    let registry = Arc::new(Registry::default());
    let counter = Counter::start(
        Arc::clone(&registry),
        Arc::clone(&metrics),
        Tokenizer::child("--count-tokens"),
    )?;
    let live = Live {
        registry,
        feed,
        metrics: Arc::clone(&metrics),
        counter,
    };
    let shared = Arc::new(Shared::default());

    // Taken first: a second daemon must fail here, before it touches the kernel.
    let admin = patiently(|| {
        AdminServer::bind(
            &config.admin.socket,
            group_id(&config.admin.group),
            Limits::default(),
        )
    })?;
    let group = admin.group();
    let scrape = match config.metrics.listen {
        Some(address) => Some(patiently(|| {
            MetricsServer::bind(address, config.metrics.allow_remote)
        })?),
        None => None,
    };
    let salt = salt::of_host(&config.state_dir)
        .with_context(|| format!("state folder {}", config.state_dir.display()))?;
    let retention = Retention {
        findings_per_user: u32::try_from(config.retention.findings_per_user).unwrap_or(u32::MAX),
        days: u32::try_from(config.retention.findings.as_secs() / 86_400).unwrap_or(u32::MAX),
    };
    let (store, notice) = Store::open(&config.state_dir, retention)?;
    if let Some(notice) = notice {
        tracing::error!("{notice}");
    }
    let store = Arc::new(store);
    metrics.policy_reload(Some(rules.hash()));
    let rules = Arc::new(rules);
    let mut judge = Judge::new(Arc::clone(&rules), salt, Some(Arc::clone(&store)));
    let missing = judge.gate.missing().clone();
    let cut_offs = judge.gate.cut_offs();
    let current = Arc::new(ArcSwap::from_pointee(config.clone()));
    let (commands, queue) = mpsc::channel(64);
    let desk = worker::start(rules.waste().clone(), commands.clone(), Arc::clone(&metrics))?;
    judge.look_for_waste_with(desk.clone());
    let quota = Arc::new(Quota::new(
        config.telemetry.requests_per_second,
        config.telemetry.bytes_per_second,
    ));
    let senders = Arc::new(Senders::new(Arc::clone(&live.registry)));
    let receiver = telemetry_receiver(&config);
    let known = Arc::clone(&store);
    let in_force = Arc::new(PolicyInForce::new(
        policy.clone(),
        rules,
        commands.clone(),
        Arc::clone(&metrics),
    ));
    let ingest = Ingest {
        desk: desk.clone(),
        quota: Arc::clone(&quota),
        senders: Arc::clone(&senders),
        listen: receiver.as_ref().map(Receiver::address),
    };
    let backend = DaemonBackend::new(
        live.clone(),
        Arc::clone(&shared),
        commands.clone(),
        Arc::clone(&current),
        store,
        Arc::clone(&in_force),
    );
    let backend: Arc<dyn Backend> = Arc::new(backend.with_ingest(ingest).with_missing(&missing));
    let (stop, stopped) = watch::channel(false);
    let door = config.admin.socket.with_file_name("relay.sock");
    let own = kams_relay::identity::uid();
    let effects = Box::new(carry_out);
    let relays = Relays::listen(&door, (own, &instance), &live, effects)
        .with_context(|| format!("relays cannot be served at {}", door.display()))?;
    let enforcement = Enforcement {
        policy: in_force.policy(),
        pin: pin_folder(&config),
        relays: relay_pool(&door, &instance),
        store: Some(known),
        cut_offs,
        holder: holder(&config),
    };
    let engine = start_engine(config, live, shared, judge, relays, enforcement, queue).await?;
    if let Err(error) = watch_policy(&in_force, stopped.clone()) {
        let path = policy.path().display();
        tracing::warn!(%error, "{path}: changes are not noticed; `kams policy reload` or SIGHUP reads it again");
    }
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(admin.serve(Arc::clone(&backend), Arc::clone(&metrics), stopped.clone()));
    if let Some(receiver) = receiver {
        tasks.spawn(receiver.serve(quota, senders, desk, Arc::clone(&metrics), stopped.clone()));
    }
    if let Some(scrape) = scrape {
        tasks.spawn(scrape.serve(backend, Arc::clone(&metrics), stopped));
    }
    // Told only to a service manager; without one there is nobody to tell.
    drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
    parent.ready().await;
    tracing::info!("kamsd {} watches this host", env!("CARGO_PKG_VERSION"));

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let ended = loop {
        tokio::select! {
            _ = interrupt.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
            () = parent.gone() => {
                tracing::error!("the parent process has gone; without it nothing may be held");
                break Ok(());
            }
            _ = hangup.recv() => reload(sources, &in_force, &current, &commands, &group, &metrics).await,
            Some(ended) = tasks.join_next() => {
                break ended.map_err(anyhow::Error::from).and_then(|r| r.context("a server ended"));
            }
        }
    };
    drop(commands.send(Command::Stop).await);
    let engine_ended = tokio::task::spawn_blocking(move || engine.join()).await;
    stop.send_replace(true);
    while tasks.join_next().await.is_some() {}
    if !matches!(engine_ended, Ok(Ok(()))) {
        anyhow::bail!("the engine ended badly; see the log above");
    }
    ended
}

/// The receiver of reports; none where it is off. One that cannot listen is no reason not to watch: another collector
/// may have the port.
fn telemetry_receiver(config: &Config) -> Option<Receiver> {
    let address = config.telemetry.listen?;
    let limits = telemetry::Limits::of(config.telemetry.max_body, config.telemetry.max_unpacked);
    Receiver::bind(address, limits)
        .inspect_err(|error| {
            tracing::error!("{error}: agents cannot report their model calls; set `telemetry.listen` to another address, or off");
        })
        .ok()
}

/// The pool of relays; without it servers are watched, and nothing is refused.
fn relay_pool(door: &std::path::Path, instance: &str) -> Option<Box<dyn RelaySink>> {
    match Pool::new(door, instance) {
        Ok(pool) => Some(Box::new(pool)),
        Err(error) => {
            tracing::error!("no relays, so nothing can be enforced: {error}");
            None
        }
    }
}

/// The way to who answers the questions of servers' filters.
fn holder(config: &Config) -> Option<HolderClient> {
    let program = std::env::current_exe().ok()?.with_file_name("kams-relay");
    let door = config.admin.socket.with_file_name("seccomp.sock");
    Some(HolderClient::new(&program, &door))
}

/// What policy wants done beyond messages, as far as it is not the relay's own.
fn carry_out(effect: Effect) {
    match effect {
        // Its relay ends both streams. A wrapped server is killed by its parent; one that we know by its start
        // by us, also where no relay stands.
        Effect::KillServer {
            server_id,
            pid,
            start,
        } => {
            let killed = start != 0 && kams_host::hold::kill_tree(pid, start);
            tracing::warn!(server_id, pid, killed, "policy ended a server");
        }
        // The engine follows the restriction that this decision has left.
        Effect::CutNetwork { .. } => {}
    }
}

/// Where held processes are named for whoever comes after this process.
fn pin_folder(config: &Config) -> Option<PathBuf> {
    if let Err(error) = kams_host::hold::mount_bpf_filesystem() {
        tracing::warn!(%error, "no BPF filesystem: nothing can be held, so nothing enforced");
        return None;
    }
    Some(kams_host::hold::folder(&watchdog::pin_name(config)))
}

/// Starts the sensor and the engine's thread; returns once every probe is proved.
async fn start_engine(
    config: Config,
    live: Live,
    shared: Arc<Shared>,
    judge: Judge,
    relays: Relays,
    enforcement: Enforcement,
    commands: mpsc::Receiver<Command>,
) -> Result<std::thread::JoinHandle<()>> {
    let (ready, started) = tokio::sync::oneshot::channel::<Result<(), EngineError>>();
    let work = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                drop(ready.send(Err(EngineError::Thread(error))));
                return;
            }
        };
        let _ends_all = EndsAll("engine");
        let judging = match Judging::start(judge, live.clone(), Some(relays)) {
            Ok(judging) => judging,
            Err(error) => {
                drop(ready.send(Err(EngineError::Thread(error))));
                return;
            }
        };
        // After the judging thread has started and before the sensor's do: they inherit it.
        if let Err(error) = kams_host::priority::raise() {
            tracing::warn!(%error, "no higher priority: sessions may be missed when many agents start at once");
        }
        match Engine::new(config, live, shared, judging, enforcement) {
            Ok((engine, events)) => {
                drop(ready.send(Ok(())));
                runtime.block_on(engine.run(events, commands));
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(work)
        .map_err(EngineError::Thread)?;
    started
        .await
        .context("the engine's thread ended at its start")??;
    Ok(thread)
}

async fn reload(
    sources: &Sources,
    in_force: &Arc<PolicyInForce>,
    current: &ArcSwap<Config>,
    commands: &mpsc::Sender<Command>,
    group: &kams_agent::admin::AdminGroup,
    metrics: &Metrics,
) {
    drop(sd_notify::notify(&[sd_notify::NotifyState::Reloading]));
    match config::load(sources) {
        Ok(loaded) => {
            for key in loaded.needs_restart(&current.load()) {
                tracing::warn!("{key} takes effect at the next start");
            }
            group.set(group_id(&loaded.config.admin.group));
            current.store(Arc::new(loaded.config.clone()));
            drop(commands.send(Command::Reload(Box::new(loaded.config))).await);
            tracing::info!("configuration reloaded");
        }
        Err(problems) => {
            metrics.config_reload(false);
            tracing::error!("the configuration is refused, the running one stays:\n{problems}");
        }
    }
    let in_force = Arc::clone(in_force);
    // What came of it is logged and counted there.
    drop(tokio::task::spawn_blocking(move || in_force.reload().is_ok()).await);
    drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
}
