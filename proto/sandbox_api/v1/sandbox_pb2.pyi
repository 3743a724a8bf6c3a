from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_COMPLETED: _ClassVar[Outcome]
    OUTCOME_PROGRAM_ERROR: _ClassVar[Outcome]
    OUTCOME_SIGNALED: _ClassVar[Outcome]
    OUTCOME_EXITED: _ClassVar[Outcome]
    OUTCOME_TIME_LIMIT: _ClassVar[Outcome]
    OUTCOME_MEMORY_LIMIT: _ClassVar[Outcome]
    OUTCOME_OUTPUT_LIMIT: _ClassVar[Outcome]
    OUTCOME_PROTOCOL_VIOLATION: _ClassVar[Outcome]

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_COMPILE: _ClassVar[Phase]
    PHASE_LOAD: _ClassVar[Phase]
    PHASE_CONSTRUCT: _ClassVar[Phase]
    PHASE_RESET: _ClassVar[Phase]
    PHASE_STEP: _ClassVar[Phase]
    PHASE_VERIFY: _ClassVar[Phase]
    PHASE_SOLUTION: _ClassVar[Phase]

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_REQUEST: _ClassVar[ErrorReason]
    ERROR_REASON_PROGRAM_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_EPISODE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_EPISODE_ENDED: _ClassVar[ErrorReason]
    ERROR_REASON_STEP_ORDER: _ClassVar[ErrorReason]
    ERROR_REASON_EPISODE_LOST: _ClassVar[ErrorReason]
    ERROR_REASON_CAPACITY: _ClassVar[ErrorReason]
    ERROR_REASON_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_QUOTA: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]

class ProgramKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROGRAM_KIND_UNSPECIFIED: _ClassVar[ProgramKind]
    PROGRAM_KIND_GAME: _ClassVar[ProgramKind]
    PROGRAM_KIND_TOOL_USE: _ClassVar[ProgramKind]
    PROGRAM_KIND_GYMNASIUM: _ClassVar[ProgramKind]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_COMPLETED: Outcome
OUTCOME_PROGRAM_ERROR: Outcome
OUTCOME_SIGNALED: Outcome
OUTCOME_EXITED: Outcome
OUTCOME_TIME_LIMIT: Outcome
OUTCOME_MEMORY_LIMIT: Outcome
OUTCOME_OUTPUT_LIMIT: Outcome
OUTCOME_PROTOCOL_VIOLATION: Outcome
PHASE_UNSPECIFIED: Phase
PHASE_COMPILE: Phase
PHASE_LOAD: Phase
PHASE_CONSTRUCT: Phase
PHASE_RESET: Phase
PHASE_STEP: Phase
PHASE_VERIFY: Phase
PHASE_SOLUTION: Phase
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_REQUEST: ErrorReason
ERROR_REASON_PROGRAM_NOT_FOUND: ErrorReason
ERROR_REASON_EPISODE_NOT_FOUND: ErrorReason
ERROR_REASON_EPISODE_ENDED: ErrorReason
ERROR_REASON_STEP_ORDER: ErrorReason
ERROR_REASON_EPISODE_LOST: ErrorReason
ERROR_REASON_CAPACITY: ErrorReason
ERROR_REASON_UNAVAILABLE: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_QUOTA: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
PROGRAM_KIND_UNSPECIFIED: ProgramKind
PROGRAM_KIND_GAME: ProgramKind
PROGRAM_KIND_TOOL_USE: ProgramKind
PROGRAM_KIND_GYMNASIUM: ProgramKind

class ItemError(_message.Message):
    __slots__ = ("reason", "message", "retry_delay_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_S_FIELD_NUMBER: _ClassVar[int]
    reason: ErrorReason
    message: str
    retry_delay_s: float
    def __init__(self, reason: _Optional[_Union[ErrorReason, str]] = ..., message: _Optional[str] = ..., retry_delay_s: _Optional[float] = ...) -> None: ...

class Diagnostic(_message.Message):
    __slots__ = ("phase", "line", "exception", "message", "limit", "signal", "exit_status", "output_tail")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TAIL_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    line: int
    exception: str
    message: str
    limit: str
    signal: int
    exit_status: int
    output_tail: str
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., line: _Optional[int] = ..., exception: _Optional[str] = ..., message: _Optional[str] = ..., limit: _Optional[str] = ..., signal: _Optional[int] = ..., exit_status: _Optional[int] = ..., output_tail: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("step_timeout_s", "load_timeout_s", "cpu_time_s", "memory_bytes", "max_processes", "max_open_files", "scratch_bytes", "scratch_inodes", "max_observation_bytes", "max_info_bytes", "max_action_bytes", "max_output_bytes", "max_steps", "idle_timeout_s", "lifetime_s")
    STEP_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    LOAD_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    CPU_TIME_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    MAX_OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_INODES_FIELD_NUMBER: _ClassVar[int]
    MAX_OBSERVATION_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_INFO_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_ACTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_S_FIELD_NUMBER: _ClassVar[int]
    step_timeout_s: float
    load_timeout_s: float
    cpu_time_s: float
    memory_bytes: int
    max_processes: int
    max_open_files: int
    scratch_bytes: int
    scratch_inodes: int
    max_observation_bytes: int
    max_info_bytes: int
    max_action_bytes: int
    max_output_bytes: int
    max_steps: int
    idle_timeout_s: float
    lifetime_s: float
    def __init__(self, step_timeout_s: _Optional[float] = ..., load_timeout_s: _Optional[float] = ..., cpu_time_s: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., max_processes: _Optional[int] = ..., max_open_files: _Optional[int] = ..., scratch_bytes: _Optional[int] = ..., scratch_inodes: _Optional[int] = ..., max_observation_bytes: _Optional[int] = ..., max_info_bytes: _Optional[int] = ..., max_action_bytes: _Optional[int] = ..., max_output_bytes: _Optional[int] = ..., max_steps: _Optional[int] = ..., idle_timeout_s: _Optional[float] = ..., lifetime_s: _Optional[float] = ...) -> None: ...

class RegisterProgramRequest(_message.Message):
    __slots__ = ("source", "entry", "runtime", "limits", "group_mode")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    GROUP_MODE_FIELD_NUMBER: _ClassVar[int]
    source: str
    entry: str
    runtime: str
    limits: Limits
    group_mode: bool
    def __init__(self, source: _Optional[str] = ..., entry: _Optional[str] = ..., runtime: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., group_mode: _Optional[bool] = ...) -> None: ...

class RegisterProgramResponse(_message.Message):
    __slots__ = ("program_id", "outcome", "diagnostic", "kind", "entry", "has_verify", "has_solution", "tools_json", "limits", "group_size")
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    HAS_VERIFY_FIELD_NUMBER: _ClassVar[int]
    HAS_SOLUTION_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    outcome: Outcome
    diagnostic: Diagnostic
    kind: ProgramKind
    entry: str
    has_verify: bool
    has_solution: bool
    tools_json: bytes
    limits: Limits
    group_size: int
    def __init__(self, program_id: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., diagnostic: _Optional[_Union[Diagnostic, _Mapping]] = ..., kind: _Optional[_Union[ProgramKind, str]] = ..., entry: _Optional[str] = ..., has_verify: _Optional[bool] = ..., has_solution: _Optional[bool] = ..., tools_json: _Optional[bytes] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., group_size: _Optional[int] = ...) -> None: ...

class ResetItem(_message.Message):
    __slots__ = ("program_id", "seed", "options_json", "max_turns", "prefix_actions", "timeout_s")
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    seed: int
    options_json: bytes
    max_turns: int
    prefix_actions: _containers.RepeatedScalarFieldContainer[str]
    timeout_s: float
    def __init__(self, program_id: _Optional[str] = ..., seed: _Optional[int] = ..., options_json: _Optional[bytes] = ..., max_turns: _Optional[int] = ..., prefix_actions: _Optional[_Iterable[str]] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ResetItem]
    def __init__(self, items: _Optional[_Iterable[_Union[ResetItem, _Mapping]]] = ...) -> None: ...

class ResetResult(_message.Message):
    __slots__ = ("index", "error", "episode_id", "outcome", "observation", "observation_cut_bytes", "info_json", "tools_json", "prefix_results", "diagnostic")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_CUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    PREFIX_RESULTS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    index: int
    error: ItemError
    episode_id: str
    outcome: Outcome
    observation: str
    observation_cut_bytes: int
    info_json: bytes
    tools_json: bytes
    prefix_results: _containers.RepeatedCompositeFieldContainer[StepResult]
    diagnostic: Diagnostic
    def __init__(self, index: _Optional[int] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ..., episode_id: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., observation: _Optional[str] = ..., observation_cut_bytes: _Optional[int] = ..., info_json: _Optional[bytes] = ..., tools_json: _Optional[bytes] = ..., prefix_results: _Optional[_Iterable[_Union[StepResult, _Mapping]]] = ..., diagnostic: _Optional[_Union[Diagnostic, _Mapping]] = ...) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ResetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ResetResult, _Mapping]]] = ...) -> None: ...

class StepItem(_message.Message):
    __slots__ = ("episode_id", "step_index", "action", "timeout_s")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_INDEX_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    step_index: int
    action: str
    timeout_s: float
    def __init__(self, episode_id: _Optional[str] = ..., step_index: _Optional[int] = ..., action: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[StepItem]
    def __init__(self, items: _Optional[_Iterable[_Union[StepItem, _Mapping]]] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("index", "error", "step_index", "outcome", "observation", "observation_cut_bytes", "reward", "terminated", "truncated", "info_json", "diagnostic")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STEP_INDEX_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_CUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    index: int
    error: ItemError
    step_index: int
    outcome: Outcome
    observation: str
    observation_cut_bytes: int
    reward: float
    terminated: bool
    truncated: bool
    info_json: bytes
    diagnostic: Diagnostic
    def __init__(self, index: _Optional[int] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ..., step_index: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., observation: _Optional[str] = ..., observation_cut_bytes: _Optional[int] = ..., reward: _Optional[float] = ..., terminated: _Optional[bool] = ..., truncated: _Optional[bool] = ..., info_json: _Optional[bytes] = ..., diagnostic: _Optional[_Union[Diagnostic, _Mapping]] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[StepResult]
    def __init__(self, results: _Optional[_Iterable[_Union[StepResult, _Mapping]]] = ...) -> None: ...

class Trial(_message.Message):
    __slots__ = ("seed", "actions")
    SEED_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    seed: int
    actions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, seed: _Optional[int] = ..., actions: _Optional[_Iterable[str]] = ...) -> None: ...

class TrialResult(_message.Message):
    __slots__ = ("outcome", "final_reward", "terminated", "truncated")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FINAL_REWARD_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    final_reward: float
    terminated: bool
    truncated: bool
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., final_reward: _Optional[float] = ..., terminated: _Optional[bool] = ..., truncated: _Optional[bool] = ...) -> None: ...

class VerifyItem(_message.Message):
    __slots__ = ("episode_id", "run_oracle", "timeout_s", "oracle_seeds", "trials")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ORACLE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    ORACLE_SEEDS_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    run_oracle: bool
    timeout_s: float
    oracle_seeds: _containers.RepeatedScalarFieldContainer[int]
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    def __init__(self, episode_id: _Optional[str] = ..., run_oracle: _Optional[bool] = ..., timeout_s: _Optional[float] = ..., oracle_seeds: _Optional[_Iterable[int]] = ..., trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[VerifyItem]
    def __init__(self, items: _Optional[_Iterable[_Union[VerifyItem, _Mapping]]] = ...) -> None: ...

class Divergence(_message.Message):
    __slots__ = ("step_index", "field", "recorded", "replayed")
    STEP_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    step_index: int
    field: str
    recorded: str
    replayed: str
    def __init__(self, step_index: _Optional[int] = ..., field: _Optional[str] = ..., recorded: _Optional[str] = ..., replayed: _Optional[str] = ...) -> None: ...

class OracleResult(_message.Message):
    __slots__ = ("outcome", "actions", "final_reward", "terminated", "truncated", "diagnostic")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    FINAL_REWARD_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    actions: _containers.RepeatedScalarFieldContainer[str]
    final_reward: float
    terminated: bool
    truncated: bool
    diagnostic: Diagnostic
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., actions: _Optional[_Iterable[str]] = ..., final_reward: _Optional[float] = ..., terminated: _Optional[bool] = ..., truncated: _Optional[bool] = ..., diagnostic: _Optional[_Union[Diagnostic, _Mapping]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("index", "error", "reproduced", "divergence", "has_verify", "verify_outcome", "verified", "verify_message", "oracle", "diagnostic", "oracles", "trials")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REPRODUCED_FIELD_NUMBER: _ClassVar[int]
    DIVERGENCE_FIELD_NUMBER: _ClassVar[int]
    HAS_VERIFY_FIELD_NUMBER: _ClassVar[int]
    VERIFY_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    VERIFY_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ORACLE_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    ORACLES_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    index: int
    error: ItemError
    reproduced: bool
    divergence: Divergence
    has_verify: bool
    verify_outcome: Outcome
    verified: bool
    verify_message: str
    oracle: OracleResult
    diagnostic: Diagnostic
    oracles: _containers.RepeatedCompositeFieldContainer[OracleResult]
    trials: _containers.RepeatedCompositeFieldContainer[TrialResult]
    def __init__(self, index: _Optional[int] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ..., reproduced: _Optional[bool] = ..., divergence: _Optional[_Union[Divergence, _Mapping]] = ..., has_verify: _Optional[bool] = ..., verify_outcome: _Optional[_Union[Outcome, str]] = ..., verified: _Optional[bool] = ..., verify_message: _Optional[str] = ..., oracle: _Optional[_Union[OracleResult, _Mapping]] = ..., diagnostic: _Optional[_Union[Diagnostic, _Mapping]] = ..., oracles: _Optional[_Iterable[_Union[OracleResult, _Mapping]]] = ..., trials: _Optional[_Iterable[_Union[TrialResult, _Mapping]]] = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Verdict]
    def __init__(self, results: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ...) -> None: ...

class ForkRequest(_message.Message):
    __slots__ = ("episode_id", "copies")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    copies: int
    def __init__(self, episode_id: _Optional[str] = ..., copies: _Optional[int] = ...) -> None: ...

class ForkResponse(_message.Message):
    __slots__ = ("episode_ids",)
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, episode_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("episode_ids",)
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, episode_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ("closed",)
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    closed: int
    def __init__(self, closed: _Optional[int] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Runtime(_message.Message):
    __slots__ = ("name", "python_version", "packages")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    python_version: str
    packages: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., python_version: _Optional[str] = ..., packages: _Optional[_Iterable[str]] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("live_episodes", "pending_items", "programs", "jails", "steps_total", "ended_total")
    class EndedTotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LIVE_EPISODES_FIELD_NUMBER: _ClassVar[int]
    PENDING_ITEMS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    JAILS_FIELD_NUMBER: _ClassVar[int]
    STEPS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ENDED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    live_episodes: int
    pending_items: int
    programs: int
    jails: int
    steps_total: int
    ended_total: _containers.ScalarMap[str, int]
    def __init__(self, live_episodes: _Optional[int] = ..., pending_items: _Optional[int] = ..., programs: _Optional[int] = ..., jails: _Optional[int] = ..., steps_total: _Optional[int] = ..., ended_total: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("name", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "backend", "isolation", "runtimes", "default_limits", "max_limits", "max_episodes", "max_batch_items", "max_pending_items", "load", "shards", "group_size")
    class IsolationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_LIMITS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIMITS_FIELD_NUMBER: _ClassVar[int]
    MAX_EPISODES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_PENDING_ITEMS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    version: str
    backend: str
    isolation: _containers.ScalarMap[str, str]
    runtimes: _containers.RepeatedCompositeFieldContainer[Runtime]
    default_limits: Limits
    max_limits: Limits
    max_episodes: int
    max_batch_items: int
    max_pending_items: int
    load: Load
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    group_size: int
    def __init__(self, version: _Optional[str] = ..., backend: _Optional[str] = ..., isolation: _Optional[_Mapping[str, str]] = ..., runtimes: _Optional[_Iterable[_Union[Runtime, _Mapping]]] = ..., default_limits: _Optional[_Union[Limits, _Mapping]] = ..., max_limits: _Optional[_Union[Limits, _Mapping]] = ..., max_episodes: _Optional[int] = ..., max_batch_items: _Optional[int] = ..., max_pending_items: _Optional[int] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., group_size: _Optional[int] = ...) -> None: ...
