"""Every bound of the core by name, its unit last. A loop, queue, page or retry without a name here is a mistake."""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS

# What a caller may hand in.
TEXT_MAX_BYTES: Final = 1_048_576
"""The longest body of one message, in UTF-8 bytes; channels have shorter limits of their own."""
KEY_MAX_BYTES: Final = 512
"""The longest idempotency key, target id or other identifier."""
UNITS_MAX: Final = 100
"""The most units (visible messages) that one intent may be rendered into."""
ATTACHMENTS_MAX: Final = 20
REASON_MAX_CHARS: Final = 500
ERROR_TEXT_MAX_CHARS: Final = 500
"""How much of a platform's error text or raw answer is kept."""
RAW_ANSWER_MAX_BYTES: Final = 1_048_576
"""The longest answer that a channel may have kept with a receipt, as JSON; of a longer one only the ids are."""

# Files that go with messages.
MEDIA_MAX_BYTES: Final = 100 * 1_048_576
"""The largest file of one attachment; channels have smaller limits of their own."""
MEDIA_NAME_MAX_BYTES: Final = 255
MEDIA_PIECE_BYTES: Final = 1_048_576
"""How much of a file is read at a time."""
MEDIA_THREADS: Final = 4
"""How many files of one gateway are copied, checked or removed at once."""
MEDIA_GRACE_S: Final = 600.0
"""How old a copy or a draft that no intent needs must be before a sweep removes it."""
MEDIA_SWEEP_EVERY_S: Final = 600.0
MEDIA_SWEEP_FILES: Final = 10_000
"""The most files that one sweep looks at; the next one goes on behind them."""
MEDIA_HOLD_WAIT_S: Final = 10.0
"""How long taking a copy waits for another process that removes one from the same folder."""
MEDIA_RELEASE_WAIT_S: Final = 2.0
"""How long removing a copy waits for messages that are about to be recorded; a sweep comes later."""

# One attempt.
DEADLINE_MS: Final = 30 * SECOND_MS
"""The hard deadline of one attempt, from its claim."""
SETTLE_MS: Final = 15 * SECOND_MS
"""How long after its deadline a request may still be applied, where a channel does not say otherwise."""
CLOCK_BOUND_MS: Final = 5 * SECOND_MS
"""How far the clocks of two hosts may differ. On one host it is 0."""

# Retries and checks.
ATTEMPTS_MAX: Final = 6
BACKOFF_MS: Final = (2 * SECOND_MS, 10 * SECOND_MS, 60 * SECOND_MS, 5 * MINUTE_MS, 15 * MINUTE_MS)
"""The ceiling of the wait after the 1st, 2nd, ... failure; the last repeats. The wait is drawn below it."""
RETRY_AFTER_MAX_MS: Final = 24 * HOUR_MS
"""A platform that asks for a longer wait is asked again after this one."""
CHECKS_MAX: Final = 5
"""How many look-ups an unknown outcome gets after its lease end."""
CHECK_BACKOFF_MS: Final = (15 * SECOND_MS, 15 * MINUTE_MS, 2 * HOUR_MS, 8 * HOUR_MS, 14 * HOUR_MS)
LOOK_UP_REQUESTS_MAX: Final = 12
"""How many pages and other reads one look-up may take."""
UNRESOLVED_HOLDS_AFTER_MS: Final = 60 * SECOND_MS
"""An unknown outcome that is not settled this long after its lease end is held, and its lane goes on."""
PROBE_WAIT_MAX_MS: Final = 60 * SECOND_MS
"""The longest wait between two attempts to reach a platform that cannot be reached; they cost no attempt."""
PROBE_AFTER_FAILURES: Final = 3
"""After so many attempts in a row that did not reach the platform, one lane at a time probes it."""

# Maximum age of an intent, by relation.
AGE_REPLY_MS: Final = 6 * HOUR_MS
AGE_FOLLOWUP_MS: Final = 6 * HOUR_MS
AGE_BROADCAST_MS: Final = 24 * HOUR_MS
AGE_SYSTEM_MS: Final = 24 * HOUR_MS

# Turns.
TURN_ATTEMPTS_MAX: Final = 5
"""How often a turn may end badly before it is held."""
TURNS_MAX: Final = 64
"""How many turns of one gateway run at once."""
TURN_TIMEOUT_S: Final = 3_600.0
"""How long one run of a turn may take; then it is cancelled and counts as a bad end."""
TURN_SENDS_MAX: Final = 100
"""How many messages one turn may send, edit or delete."""
ACKS_WAITING_MAX: Final = 10_000
"""How many events may wait for the point at which they are acknowledged; one more is refused."""
TURN_BACKOFF_MS: Final = (1 * SECOND_MS, 10 * SECOND_MS, 60 * SECOND_MS, 5 * MINUTE_MS)
"""The ceiling of the wait after the 1st, 2nd, ... bad end of a turn; the last repeats."""

# Receiving.
CURSOR_EVENTS_MAX: Final = 10_000
"""How many advances one stream of a cursor takes; then another stream goes on."""
POLL_WAIT_S: Final = 25.0
"""How long a platform is asked to hold a poll that has nothing to say."""
POLL_MARGIN_S: Final = 10.0
"""How much longer the answer to a poll is waited for."""
POLL_BACKOFF_S: Final = 1.0
POLL_BACKOFF_MAX_S: Final = 60.0
"""The ceiling of the wait after the first failed poll, and after many; the wait is drawn below it."""
POLL_UNFINISHED_MAX: Final = 1_000
"""How many events of one account may wait to be done; then nothing more is polled for."""
POLL_REQUESTS_MAX: Final = 100
"""How many further requests one poll may take to read a gap."""
POLL_PAUSE_S: Final = 1.0
"""How long to wait before events that are known and not done are asked for again."""
POLL_REFUSED_S: Final = 60.0
"""How long to wait after a refusal that only a person can mend: a credential, a right."""
POLL_IDLE_S: Final = 3_600.0
"""How often a cursor that moved without any event is recorded."""
POLL_ANSWER_MAX_BYTES: Final = 32 * 1_048_576
"""The longest answer to a poll that is read."""
WEBHOOK_BODY_MAX_BYTES: Final = 1_048_576
"""The longest body of a webhook that is read."""
WEBHOOK_BODY_WAIT_S: Final = 10.0
"""How long a body may take to come in."""
WEBHOOK_DEADLINE_S: Final = 10.0
"""How soon a webhook is answered, where the channel does not say what its platform allows."""
WEBHOOK_IN_FLIGHT_MAX: Final = 256
"""How many requests of one webhook are worked on at once, those included whose caller has its answer already."""
WEBHOOK_BEHIND_MAX: Final = 1_000
"""How many events may be answered for and not recorded yet, where the policy is to answer first."""
WEBHOOK_RETRY_S: Final = 5
"""When a platform that got no acknowledgement is asked to deliver again."""
WEBHOOK_CLOSE_S: Final = 10.0
"""How long closing waits for what is being recorded."""
SOCKET_FRAME_MAX_BYTES: Final = 4 * 1_048_576
"""The longest message of a socket that is read."""
SOCKET_OPEN_S: Final = 10.0
SOCKET_CLOSE_S: Final = 2.0
SOCKET_PING_S: Final = 20.0
"""How often a silent socket is asked whether it lives, and how long its answer may take."""

# Bots, and what comes back of our own.
BOT_PAIR_TURNS: Final = 20
"""How many turns one bot may cause in one place, within the window, before a person speaks there."""
BOT_PAIR_WINDOW_S: Final = 3_600.0
FUSE_TURNS_PER_MINUTE: Final = 30
"""How many messages of bots a minute one place may bring; more blow its fuse."""
BOT_ROWS_MAX: Final = 1_000
"""How many of the newest messages of bots in one place are counted."""
ECHO_HORIZON_S: Final = 7 * 86_400.0
"""How long after its receipt a message of ours is known again by its id, where a channel says nothing else."""
ECHO_WAIT_S: Final = 5.0
"""How long a message that reads like one of ours on its way there waits for that one's receipt."""
ECHO_CANDIDATES_MAX: Final = 16
"""With how many messages of ours of one place it is compared: those on their way, and those in doubt."""
ECHO_DOUBTS_MAX: Final = 256
"""How many of the newest unknown outcomes are looked through for them."""
ORIGIN_TAG_MAX_BYTES: Final = 256
"""The longest tag of another version that is passed on with a message."""

# Sessions.
FRESHNESS_S: Final = 3_600.0
"""How long after its last message a conversation is simply continued."""
RESUMES_MAX: Final = 3
"""So many interruptions of one session in a row suspend it."""
RESTARTS_MAX: Final = 3
RESTARTS_WITHIN_MS: Final = 60 * SECOND_MS
"""So many starts within this time, each after turns that were interrupted, stop the automatic resuming."""
MENTIONS_MAX: Final = 50
"""How many messages that did not speak to us are handed over as context."""
HISTORY_MAX: Final = 1_000
"""The most entries of one page of a conversation."""

# The store.
APPEND_WAIT_MS: Final = 5 * SECOND_MS
"""How long an append may wait for a locked ledger before it is refused."""
WRITER_BATCH_ITEMS: Final = 256
"""The most appends that share one commit."""
WRITER_QUEUE_ITEMS: Final = 20_000
"""The most appends that may wait for the writer; one more is refused."""
READER_QUEUE_ITEMS: Final = 20_000
"""The most reads that may wait for the reader; one more is refused."""
GROUP_APPENDS_MAX: Final = 256
"""The most appends that may be handed over together, to share one transaction."""
STATE_CACHE_STREAMS: Final = 20_000
PARTITIONS_REMEMBERED: Final = 20_000
"""How many lanes and keys the writer keeps the members of in memory."""
PARTITION_MEMBERS: Final = 64
"""The most members that are kept of one; a more crowded one is asked of the table each time."""
EVENTS_PER_STREAM_MAX: Final = 100_000
EVENT_MAX_BYTES: Final = 8 * 1_048_576
PAGE_ROWS: Final = 500
PAGE_BYTES: Final = 4 * 1_048_576
"""A page of notifications ends with the event whose body takes it beyond this."""
SCAN_POSITIONS: Final = 20_000
"""How many positions one read looks through for the topics that a follower asked for."""
FOLLOW_CHECK_S: Final = 0.5
"""How long a follower that heard of no commit waits before it looks all the same."""
WORKERS_MAX: Final = 1_000
"""How many of the newest workers that said no goodbye are asked for what they serve."""
DECIDE_TRIES_MAX: Final = 20
"""How often a decision is made again because another worker was first."""
REBUILD_BATCH_STREAMS: Final = 2_000
BUSY_SLEEP_MIN_S: Final = 0.0001
BUSY_SLEEP_MAX_S: Final = 0.0007
WAL_CHECKPOINT_PAGES: Final = 4_000
"""How far the write-ahead log grows before a commit also carries it into the file, which costs flushes of its own."""
PAGE_CACHE_KIB: Final = 32_768
WAL_KEEP_BYTES: Final = 64 * 1_048_576
"""A write-ahead log that grew beyond this is cut back at the next checkpoint."""
WATCH_INTERVAL_S: Final = 0.02
"""How often other processes' commits are looked for."""

# The dispatcher.
CLAIMS_PER_PASS: Final = 20
IN_FLIGHT_MAX: Final = 128
LATE_FACTS_MAX: Final = 64
"""How many late facts of one intent are remembered by key, to tell a repetition from news."""
EFFECT_PAGE_EVENTS: Final = 200
PLACES_REMEMBERED: Final = 10_000
"""How many conversations have their pseudonyms kept in memory."""
LOOK_FRESH_MS: Final = 50
"""A look at the ledger that is no older than this counts as the last look before the request."""
CALLBACKS_MAX: Final = 1_000
"""How many functions that alone can send a message are kept; the oldest of more is let go, and its message ends."""
RUNS_REMEMBERED: Final = 10_000
"""How many (producer, run) pairs have their count of sends kept in memory."""
LATE_SENDS_MAX: Final = 1_000
"""How many best-effort sends that found no ledger are kept in memory until it accepts again."""
WAIT_MAX_S: Final = 3_600.0
"""How long `Delivery.wait` waits where no time is given."""
