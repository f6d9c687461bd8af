//! The daemon.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use clap::Parser;
use kams_agent::admin::{AdminServer, Backend, Feed, Limits, MetricsServer, group_id};
use kams_agent::config::{self, Config, LogFormat, Sources};
use kams_agent::engine::backend::DaemonBackend;
use kams_agent::engine::live::Live;
use kams_agent::engine::registry::Registry;
use kams_agent::engine::{Command, Engine, EngineError, Shared};
use kams_export::metrics::{LabelLimits, Metrics};
use kams_export::view::Time;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Watches the MCP traffic of every agent on this host.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Read this configuration file instead of /etc/kams (it may then belong to you instead of root).
    #[arg(long)]
    config: Option<PathBuf>,
    /// Check the configuration, print what it says, and end.
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let sources = arguments.config.map_or_else(Sources::installed, Sources::file);
    if arguments.check_config {
        return check(&sources);
    }
    match run(&sources) {
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

fn run(sources: &Sources) -> Result<()> {
    let loaded = config::load(sources)?;
    start_log(&loaded.config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(serve(loaded.config, sources));
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

async fn serve(config: Config, sources: &Sources) -> Result<()> {
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
    let feed = Feed::new(config.events, instance);
    let live = Live {
        registry: Arc::new(Registry::default()),
        feed,
        metrics: Arc::clone(&metrics),
    };
    let shared = Arc::new(Shared::default());

    // Taken first: a second daemon must fail here, before it touches the kernel.
    let admin = AdminServer::bind(
        &config.admin.socket,
        group_id(&config.admin.group),
        Limits::default(),
    )?;
    let group = admin.group();
    let scrape = match config.metrics.listen {
        Some(address) => Some(MetricsServer::bind(address, config.metrics.allow_remote)?),
        None => None,
    };
    let current = Arc::new(ArcSwap::from_pointee(config.clone()));
    let (commands, queue) = mpsc::channel(64);
    let backend: Arc<dyn Backend> = Arc::new(DaemonBackend::new(
        live.clone(),
        Arc::clone(&shared),
        commands.clone(),
        Arc::clone(&current),
    ));
    let (stop, stopped) = watch::channel(false);
    let engine = start_engine(config, live, shared, queue).await?;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(admin.serve(Arc::clone(&backend), Arc::clone(&metrics), stopped.clone()));
    if let Some(scrape) = scrape {
        tasks.spawn(scrape.serve(backend, Arc::clone(&metrics), stopped));
    }
    // Told only to a service manager; without one there is nobody to tell.
    drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
    tracing::info!("kamsd {} watches this host", env!("CARGO_PKG_VERSION"));

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let ended = loop {
        tokio::select! {
            _ = interrupt.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
            _ = hangup.recv() => reload(sources, &current, &commands, &group, &metrics).await,
            Some(ended) = tasks.join_next() => {
                break ended.map_err(anyhow::Error::from).and_then(|r| r.context("a server ended"));
            }
        }
    };
    drop(sd_notify::notify(&[sd_notify::NotifyState::Stopping]));
    drop(commands.send(Command::Stop).await);
    let engine_ended = tokio::task::spawn_blocking(move || engine.join()).await;
    stop.send_replace(true);
    while tasks.join_next().await.is_some() {}
    if !matches!(engine_ended, Ok(Ok(()))) {
        anyhow::bail!("the engine ended badly; see the log above");
    }
    ended
}

/// Starts the sensor and the engine's thread; returns once every probe is proved.
async fn start_engine(
    config: Config,
    live: Live,
    shared: Arc<Shared>,
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
        match Engine::new(config, live, shared) {
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
    drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
}
