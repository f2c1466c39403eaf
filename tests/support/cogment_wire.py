"""Messages and services of the Cogment 0.3 API, from the descriptors of its released packages."""

WIRE = """\
cogment/api/agent.proto
message AgentStartRequest
    1 string trial_id
    2 int32 actor_id
    3 ActorConfig config
    5 TrialConfig trial_config
    4 repeated int32 actor_counts
message AgentStartReply
message AgentEndRequest
    1 string trial_id
    2 int32 actor_id
message AgentEndReply
message AgentDecideRequest
    1 string trial_id
    2 int32 actor_id
    3 Observation observation
message AgentDecideReply
    1 Action action
    2 repeated Feedback feedbacks
    3 repeated Message messages
message Reward
    1 float value
    2 float confidence
    3 repeated Feedback feedbacks
message AgentRewardRequest
    1 string trial_id
    2 int32 actor_id
    4 int32 tick_id
    3 Reward reward
message AgentRewardReply
message MessageCollection
    1 repeated Message messages
message AgentOnMessageRequest
    1 string trial_id
    2 int32 actor_id
    3 repeated Message messages
message AgentOnMessageReply
service Agent
    Start AgentStartRequest -> AgentStartReply
    End AgentEndRequest -> AgentEndReply
    Decide AgentDecideRequest -> AgentDecideReply
    Reward AgentRewardRequest -> AgentRewardReply
    Version VersionRequest -> VersionInfo
    OnMessage AgentOnMessageRequest -> AgentOnMessageReply
cogment/api/common.proto
message VersionRequest
message VersionInfo
    1 repeated VersionInfo.Version versions
message VersionInfo.Version
    1 string name
    2 string version
message TrialConfig
    1 bytes content
message ActorConfig
    1 bytes content
message EnvironmentConfig
    1 bytes content
message EnvironmentParams
    1 string endpoint
    2 EnvironmentConfig config
message ActorParams
    1 string actor_class
    2 string endpoint
    3 ActorConfig config
message TrialParams
    1 TrialConfig trial_config
    2 EnvironmentParams environment
    3 repeated ActorParams actors
    4 uint32 max_steps
    5 uint32 max_inactivity
message ObservationData
    1 bytes content
    2 bool snapshot
message Observation
    1 uint64 tick_id
    2 fixed64 timestamp
    3 ObservationData data
message Action
    1 bytes content
message Feedback
    1 uint32 actor_id
    2 int32 tick_id
    3 float value
    4 float confidence
    5 bytes content
    7 uint32 agent_id
message Message
    1 int32 sender_id
    2 int32 receiver_id
    3 google.protobuf.Any payload
cogment/api/data.proto
message DatalogMsg
    1 TrialParams trial_params in a oneof
    2 DatalogSample sample in a oneof
message DatalogSample
    7 fixed64 timestamp
    1 string trial_id
    5 string user_id
    2 ObservationSet observations
    3 repeated Action actions
    4 repeated Reward rewards
    6 repeated MessageCollection messages
message LogReply
service LogExporter
    Log stream DatalogMsg -> LogReply
cogment/api/environment.proto
message ObservationSet
    1 uint64 tick_id
    2 fixed64 timestamp
    3 repeated ObservationData observations
    4 repeated int32 actors_map
message ActionSet
    1 repeated bytes actions
message EnvStartRequest
    1 string trial_id
    2 EnvironmentConfig config
    4 TrialConfig trial_config
    3 repeated int32 actor_counts
message EnvStartReply
    1 ObservationSet observation_set
message EnvEndRequest
    1 string trial_id
message EnvEndReply
message EnvUpdateRequest
    1 string trial_id
    2 ActionSet action_set
    3 bool reply_with_snapshot
message EnvUpdateReply
    1 ObservationSet observation_set
    2 repeated Feedback feedbacks
    3 bool end_trial
    4 repeated Message messages
message EnvOnMessageRequest
    1 string trial_id
    2 int32 actor_id
    3 repeated Message messages
message EnvOnMessageReply
service Environment
    Start EnvStartRequest -> EnvStartReply
    End EnvEndRequest -> EnvEndReply
    Update EnvUpdateRequest -> EnvUpdateReply
    Version VersionRequest -> VersionInfo
    OnMessage EnvOnMessageRequest -> EnvOnMessageReply
cogment/api/hooks.proto
message TrialContext
    1 TrialParams params
    2 string trial_id
    3 string user_id
service TrialHooks
    PreTrial TrialContext -> TrialContext
    Version VersionRequest -> VersionInfo
cogment/api/orchestrator.proto
message TrialHeartbeatRequest
    1 string trial_id
message TrialHeartbeatReply
message TrialStartRequest
    1 TrialConfig config
    2 string user_id
message TrialJoinRequest
    1 string trial_id
    2 int32 actor_id
message TrialStartReply
    1 string trial_id
    2 int32 actor_id
    3 ActorConfig human_config
    4 Observation observation
    5 repeated int32 actor_counts
message TrialEndRequest
    1 string trial_id
message TrialEndReply
message TrialActionRequest
    1 string trial_id
    2 int32 actor_id
    3 Action action
message TrialActionReply
    1 Observation observation
    2 Reward reward
    3 bool trial_is_over
    4 MessageCollection messages
message TrialFeedbackRequest
    1 string trial_id
    2 repeated Feedback feedbacks
message TrialFeedbackReply
message TrialMessageRequest
    1 string trial_id
    2 repeated Message messages
message TrialMessageReply
service Trial
    Start TrialStartRequest -> TrialStartReply
    Join TrialJoinRequest -> TrialStartReply
    End TrialEndRequest -> TrialEndReply
    Action TrialActionRequest -> TrialActionReply
    ActionStream stream TrialActionRequest -> stream TrialActionReply
    Heartbeat TrialHeartbeatRequest -> TrialHeartbeatReply
    GiveFeedback TrialFeedbackRequest -> TrialFeedbackReply
    Version VersionRequest -> VersionInfo
    SendMessage TrialMessageRequest -> TrialMessageReply
"""
