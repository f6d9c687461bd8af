//! Method names of all revisions.

use std::fmt;
use std::sync::Arc;

/// Longest unknown method name that is kept in the table of open requests, in bytes.
const MAX_NAME: usize = 256;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A method name. Known names cost no allocation.
        #[derive(Clone, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Method {
            $($(#[$doc])* #[doc = concat!("`", $text, "`")] $name,)*
            /// Any other name, cut to 256 bytes.
            Other(Arc<str>),
        }

        impl Method {
            /// The method of this name.
            pub fn from_name(name: &str) -> Self {
                match name {
                    $($text => Self::$name,)*
                    other => Self::Other(Arc::from(crate::json::cut(other, MAX_NAME))),
                }
            }

            /// Its name on the wire.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Other(name) => name,
                }
            }
        }
    };
}

methods! {
    Initialize = "initialize";
    Discover = "server/discover";
    Ping = "ping";
    ToolsList = "tools/list";
    ToolsCall = "tools/call";
    PromptsList = "prompts/list";
    PromptsGet = "prompts/get";
    ResourcesList = "resources/list";
    ResourceTemplatesList = "resources/templates/list";
    ResourcesRead = "resources/read";
    ResourcesSubscribe = "resources/subscribe";
    ResourcesUnsubscribe = "resources/unsubscribe";
    SubscriptionsListen = "subscriptions/listen";
    LoggingSetLevel = "logging/setLevel";
    CompletionComplete = "completion/complete";
    RootsList = "roots/list";
    SamplingCreateMessage = "sampling/createMessage";
    ElicitationCreate = "elicitation/create";
    TasksGet = "tasks/get";
    TasksResult = "tasks/result";
    TasksList = "tasks/list";
    TasksCancel = "tasks/cancel";
    TasksUpdate = "tasks/update";
    Initialized = "notifications/initialized";
    Cancelled = "notifications/cancelled";
    Progress = "notifications/progress";
    LogMessage = "notifications/message";
    ToolsListChanged = "notifications/tools/list_changed";
    PromptsListChanged = "notifications/prompts/list_changed";
    ResourcesListChanged = "notifications/resources/list_changed";
    ResourceUpdated = "notifications/resources/updated";
    RootsListChanged = "notifications/roots/list_changed";
    TaskStatus = "notifications/tasks/status";
    TaskNews = "notifications/tasks";
    ElicitationComplete = "notifications/elicitation/complete";
    SubscriptionsAcknowledged = "notifications/subscriptions/acknowledged";
}

impl Method {
    /// Whether only MCP has this name: enough to tell the protocol of a stream that was joined midway.
    /// `initialize`, `ping` and the task methods are shared with other JSON-RPC protocols.
    pub const fn is_distinctive(&self) -> bool {
        !matches!(
            self,
            Self::Initialize
                | Self::Ping
                | Self::TasksGet
                | Self::TasksResult
                | Self::TasksList
                | Self::TasksCancel
                | Self::TasksUpdate
                | Self::Progress
                | Self::Cancelled
                | Self::Other(_)
        )
    }

    /// The list that this method pages through, if it does.
    pub const fn list(&self) -> Option<ListKind> {
        match self {
            Self::ToolsList => Some(ListKind::Tools),
            Self::PromptsList => Some(ListKind::Prompts),
            Self::ResourcesList => Some(ListKind::Resources),
            Self::ResourceTemplatesList => Some(ListKind::ResourceTemplates),
            _ => None,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a paged list holds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ListKind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
}

impl ListKind {
    /// The member of the result that holds the items.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }
}
