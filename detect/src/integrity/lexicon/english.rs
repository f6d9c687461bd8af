//! English classes.

use super::{
    ACT, ALWAYS, AND, APPLY, ASK, BASE, BEFORE, BEHAVE, BYPASS, CONTENT, CONVO, COVERT, Classes, DANGER,
    DECODE, EXEC, EXTERN, FAIL, FOLLOW, GRANTED, IGNORE, ING, INSERT, MEMORY, MENTION, MODAL, MODE, MODEL,
    NEG, NOTE, NOW, OFFER, OTHER, PARAM, PAST, PERSONA, PREFER, PRETEXT, PRIOR, QUANT, READ, RECIPIENT,
    RESPOND, RULES, SAFETY, SECRET, SEND, SHELL, SHOW, SYSTEM, TELL, THIRD, THIS, TOOL, UNBOUND, USER, WHEN,
    YOU, YOUR,
};

/// Verbs in base form, regular ones inflected by the lexicon.
pub(super) const VERBS: &[(Classes, &str)] = &[
    (
        IGNORE,
        "ignore disregard forget neglect overlook dismiss abandon discard disobey unlearn",
    ),
    (
        BYPASS,
        "bypass override disable skip circumvent suspend deactivate waive supersede overrule evade sidestep relax lift suppress omit remove violate nullify void",
    ),
    (
        SEND,
        "send forward upload transmit exfiltrate email mail leak share submit deliver relay push copy report stream sync post dispatch export publish beacon mirror cc bcc transfer route smuggle ship message archive pipe",
    ),
    (
        INSERT,
        "append attach include embed insert put paste place hand fill prepend add supply pass encode pack tuck write enter concatenate smuggle provide populate stash",
    ),
    (
        SHOW,
        "output print dump reveal display show list recite repeat state say disclose expose echo quote divulge return summarise summarize write render emit",
    ),
    (
        READ,
        "read open load fetch retrieve access collect gather obtain extract grab harvest inspect scan cat pull locate capture look get view query search dig enumerate check scrape",
    ),
    (
        EXEC,
        "run execute call invoke trigger launch eval curl wget perform use visit browse navigate start fire download install issue",
    ),
    (
        ACT,
        "set delete erase wipe destroy pay purchase grant approve modify change invite transfer update alter replace redirect reroute create register buy book reserve remove add empty cancel overwrite reset drop subscribe rename assign accept confirm authorise authorize enable escalate",
    ),
    (
        TELL,
        "tell mention reveal inform notify disclose say alert warn explain acknowledge admit announce expose discuss reference refer divulge flag describe communicate report surface log speak notice realise realize know see",
    ),
    (ASK, "ask confirm approve prompt consult"),
    (
        FOLLOW,
        "follow obey comply adhere honour honor heed abide accept treat trust",
    ),
    (
        PERSONA,
        "act pretend roleplay become behave impersonate adopt simulate imagine assume pose",
    ),
    (MEMORY, "remember memorise memorize persist"),
    (
        DECODE,
        "decode decrypt decipher unscramble deobfuscate translate unpack",
    ),
    (
        FAIL,
        "fail crash break refuse malfunction penalise penalize terminate",
    ),
    (PREFER, "prefer favour favor prioritise prioritize"),
    (RESPOND, "respond answer reply continue proceed"),
    (MENTION, "detect flag prevent mitigate sanitise sanitize defend"),
];

/// Words of one form.
pub(super) const WORDS: &[(Classes, &str)] = &[
    (IGNORE | PAST, "forgotten forgot"),
    (SEND | PAST, "sent"),
    (SHOW | PAST, "shown said"),
    (READ | PAST, "got gotten taken"),
    (READ | BASE, "take ls"),
    (EXEC | ING, "running using"),
    (EXEC | PAST, "ran run"),
    (INSERT | PAST, "put written"),
    (INSERT | ING, "putting"),
    (TELL | PAST, "told said"),
    (TELL | ING, "telling"),
    (TELL | BASE, "let hint"),
    (PERSONA, "persona character roleplay"),
    (
        PRIOR,
        "previous previously prior earlier above preceding past former initial original existing foregoing old existing before previously-given given default predefined preset",
    ),
    (
        RULES,
        "instruction instructions directive directives rule rules guideline guidelines policy policies prompt prompts order orders command commands constraint constraints restriction restrictions programming training directions guidance mandate principles protocol protocols limitations briefing told task objective goals",
    ),
    (
        SAFETY,
        "safety security guardrail guardrails safeguard safeguards filter filters filtering moderation validation check checks sanitization sanitisation protection protections restriction restrictions limits safeguarding sandbox verification authentication authorization censorship ethics ethical controls control limitations warnings",
    ),
    (
        SECRET,
        "secret secrets password passwords passwd credential credentials passphrase passphrases apikey apikeys api_key private_key ssh id_rsa id_ed25519 id_ecdsa dotenv keychain keyring mnemonic wallet cookie cookies kubeconfig pii ssn iban htpasswd netrc pgpass npmrc bashrc bash_history zsh_history authorized_keys known_hosts gnupg shadow oauth jwt pem vault seedphrase pin passport cvv env",
    ),
    (
        CONVO,
        "conversation conversations dialogue transcript inbox chat chats memory messages clipboard",
    ),
    (
        CONTENT,
        "content contents file files body data text value values output outputs information details record records document documents result results message messages list database documents emails attachments prompt history context workspace schema tables email copy them everything",
    ),
    (
        USER,
        "user users person human humans customer people anyone anybody owner client them him her someone somebody requester everybody everyone operator end-user principal",
    ),
    (
        MODEL,
        "assistant assistants model models llm llms ai agent agents bot bots chatbot claude gpt chatgpt copilot gemini cursor codex language-model ais",
    ),
    (YOU, "you yourself u"),
    (YOUR, "your yours"),
    (
        COVERT,
        "silently secretly quietly covertly discreetly stealthily invisibly unnoticed undetected stealth hush confidentially privately transparently surreptitiously discreet unobtrusively covert",
    ),
    (
        NEG,
        "not never dont no without avoid avoids avoiding refrain nobody none cannot cant shouldnt mustnt wont doesnt neither nor isnt arent nothing",
    ),
    (
        MODAL,
        "must should shall need needs required require requires mandatory obliged obligatory ought necessary has have instructed expected compulsory supposed",
    ),
    (
        ALWAYS,
        "always automatically invariably unconditionally every everytime each whenever mandatory regardless throughout never",
    ),
    (
        NOTE,
        "note notice important attention warning reminder critical urgent directive message nota announcement alert update mandatory requirement compulsory bulletin advisory override hint caution priority instruction instructions task memo p0 action",
    ),
    (
        SYSTEM,
        "system admin administrator administrators developer developers root sysadmin superuser authoritative official anthropic openai maintainer supervisor maintenance authority creator ciso",
    ),
    (
        BEFORE,
        "before first beforehand prior until firstly initially precondition prerequisite preceding",
    ),
    (
        WHEN,
        "when whenever after once while during if upon each every wherever afterwards",
    ),
    (
        TOOL,
        "tool tools function functions server servers plugin plugins mcp connector connectors",
    ),
    (
        PARAM,
        "argument arguments parameter parameters param params field fields arg args attribute sidenote metadata key input query url header headers property",
    ),
    (
        QUANT,
        "all every entire full whole complete any everything each verbatim fully entirely completely raw total both anything unredacted plain",
    ),
    (
        EXTERN,
        "external remote attacker attackers webhook webhooks collector endpoint third-party outside offsite elsewhere internet upstream pastebin ngrok evil hacker listener exfil exfiltration",
    ),
    (
        UNBOUND,
        "unrestricted jailbreak jailbroken unfiltered uncensored dan elevated unlimited godmode limitless unconstrained restrictionless unconditional evil sudo",
    ),
    (
        MODE,
        "mode role persona privileges privilege access permissions console identity rights clearance session",
    ),
    (
        FAIL,
        "fails failure crash lost error errors otherwise broken invalid rejected penalty shut blocked unusable corrupted",
    ),
    (
        OTHER,
        "other others another competing alternative alternatives remaining rest competitors competitor built-in builtin native rival different unrelated existing",
    ),
    (
        PREFER,
        "instead rather only over preferred trustworthy trusted reliable sole better superior exclusively authoritative replaces supersedes supersede primary obsolete deprecated corrupted unreliable",
    ),
    (
        MEMORY,
        "memory persistent permanently future henceforth subsequent forever onward onwards later ongoing",
    ),
    (
        RESPOND,
        "response responses answer answers reply replies summary output conclusion sentence task request conversation answering responding replying continuing proceeding finishing summarizing summarising review report anything else",
    ),
    (
        ASK,
        "confirmation confirmations approval approvals consent permission permissions authorization authorisation prompts dialog dialogs asking confirming approving question questions consultation",
    ),
    (
        RECIPIENT,
        "recipient recipients address addressee account beneficiary destination payee iban phone number receiver recipients addresses",
    ),
    (
        NOW,
        "now immediately instantly henceforth onwards straightaway promptly asap directly",
    ),
    (AND, "please kindly just simply do"),
    (
        AND,
        "and then also additionally or but next so afterwards furthermore moreover plus actually",
    ),
    (
        THIS,
        "this these it that its following such step note paragraph instruction requirement",
    ),
    (
        MENTION,
        "attack attacks attacker attackers injection injections malicious detection detects detector scanner scanners scanning phrase phrases pattern patterns vulnerability vulnerabilities phishing adversarial adversary exploit exploits threat threats example examples e.g. jailbreaks mitigation owasp defenders poisoning payload payloads hijacking heuristics guardrailing redteam",
    ),
    (
        DECODE,
        "base64 rot13 base32 hex hexadecimal encoded cipher caesar encrypted morse binary reversed",
    ),
    (
        BEHAVE,
        "behavior behaviour behaves behave behaviors behaviours works operates handles",
    ),
    (
        GRANTED,
        "approved authorized authorised granted verified preapproved pre-approved prevalidated permitted allowed consented trusted validated privileged whitelisted preauthorized vetted cleared agreed confirmed",
    ),
    (
        APPLY,
        "apply applies needed required necessary enforced active relevant disabled off suspended waived lifted",
    ),
    (
        SHELL,
        "curl wget bash sh powershell nc netcat zsh python3 xargs eval rm chmod scp",
    ),
    (
        PRETEXT,
        "compliance audit auditing authentication verification validation logging telemetry analytics quality diagnostics debugging debug verify validate authenticate optimization personalization purposes reasons policy security backup identity integrity",
    ),
    (
        OFFER,
        "can may could optionally optional might allows lets supports available",
    ),
    (NEG | COVERT, "unseen unmentioned unreported undisclosed"),
    (THIRD, "is are was were be been"),
];

/// Two words in a row that mean more than each.
pub(super) const PAIRS: &[(Classes, &str, &str)] = &[
    (
        SECRET,
        "api access private secret auth ssh session bearer encryption signing deploy master service refresh user security verification recovery",
        "key keys token tokens code codes",
    ),
    (SECRET, "environment env", "variable variables vars var"),
    (
        SECRET,
        "login account connection credit bank card passport social",
        "details credentials password string card number numbers security information",
    ),
    (SECRET, "seed recovery", "phrase phrases words"),
    (
        CONVO,
        "system developer initial hidden base",
        "prompt prompts message messages",
    ),
    (
        CONVO,
        "conversation chat message command bash shell browsing session dialog dialogue browser search call",
        "history log logs transcript transcripts context",
    ),
    (
        CONVO,
        "tool previous earlier prior list available",
        "results outputs definitions schemas messages result calls",
    ),
    (CONVO, "context", "window"),
    (CONVO, "open", "files"),
    (EXTERN, "third", "party parties"),
    (MEMORY | NOW, "from", "now here"),
    (BYPASS, "turn switch", "off"),
    (BYPASS, "get work", "around"),
    (
        COVERT | TELL,
        "keep stay remain be",
        "quiet silent secret discreet hidden confidential",
    ),
    (
        UNBOUND,
        "developer god admin maintenance debug dan root jailbreak override unsafe sudo unrestricted security system",
        "mode",
    ),
    (
        UNBOUND,
        "no without",
        "restrictions limits limitations filters rules constraints restriction",
    ),
    (FAIL, "not never", "work function succeed"),
    (BEFORE, "prior", "to"),
    (OTHER, "any every all", "tool tools server servers"),
    (MODEL, "language", "model models"),
    (
        MODEL,
        "ai",
        "system systems assistant assistants agent agents model",
    ),
    (MENTION, "such", "as"),
    (MENTION, "prompt", "injection injections injection:"),
    (COVERT, "behind", "scenes"),
    (USER, "the my our", "customer owner caller"),
];

/// Parts of identifiers that say a call harms or leaks.
pub(super) const DANGEROUS: &str = "delete remove drop shell exec execute secret secrets credential credentials transfer pay payment wipe erase exfiltrate upload send post bash cmd command terminal sql email mail money funds eval ssh password token tokens grant destroy kill forward";

/// Common words of instructions, recognised when they are written in ROT13 or backwards.
pub(super) const COMMON: &str = "ignore previous instructions instruction the and user your you system prompt send all with from before tool this password credentials files contents secret every must read call email forward assistant reveal disregard execute command private admin message data into then that";
