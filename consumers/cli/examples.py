"""The examples at the end of each command's help."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "millstream": (
        ("millstream broker", "a Kafka broker to try things out, in a terminal of its own"),
        ("millstream init my-pipeline", "a folder with a working pipeline"),
        ("millstream predict my-pipeline my-pipeline/events.jsonl", "features and outputs, without Kafka"),
        ("millstream topics create my-pipeline", "the pipeline's topics"),
        ("millstream produce my-pipeline my-pipeline/events.jsonl", "write events"),
        ("millstream work my-pipeline --until-idle", "predict them"),
        ("millstream tail my-pipeline --from-beginning", "see the predictions"),
        ("millstream docs running", "read how to run workers"),
    ),
    "millstream init": (
        ("millstream init my-pipeline", "the example, with all that it needs"),
        ("millstream init orders --model model.onnx --sample events.jsonl", "a pipeline for your model and events"),
        ("millstream init orders --model model.onnx --sample-topic orders", "the same, with events of a topic"),
        (
            "millstream init orders --model m.onnx --sample-topic shop --filter 'type == order'",
            "for one kind of events",
        ),
    ),
    "millstream predict": (
        ("millstream predict my-pipeline events.jsonl", "features and outputs of each event"),
        ("millstream predict my-pipeline events.jsonl --limit 1 --json", "the first event, as JSON"),
        ("millstream predict my-pipeline --dead-letters --field age", "dead letters that are about a field"),
    ),
    "millstream profile": (
        ("millstream profile my-pipeline --events events.jsonl", "events per second and latency of each batch size"),
        ("millstream profile my-pipeline --events events.jsonl --target-p99 20ms", "the settings that meet a latency"),
        ("millstream profile my-pipeline --model my-model/2 --seconds 10 --json", "another model, for programs"),
    ),
    "millstream optimize": (
        ("millstream optimize my-pipeline --output 2 --precision int8-dynamic --events events.jsonl", "8-bit weights"),
        ("millstream optimize my-pipeline --output 3 --precision fp16 --events events.jsonl", "16 bits, for a GPU"),
        (
            "millstream optimize models/my-model/1 --output 2 --events events.jsonl --labels late",
            "also compare the accuracy",
        ),
    ),
    "millstream models": (
        ("millstream models list my-pipeline", "versions, aliases and sizes"),
        ("millstream models diff my-pipeline champion latest --events events.jsonl", "signatures and outputs"),
    ),
    "millstream models list": (
        ("millstream models list my-pipeline", "the versions in the repository"),
        ("millstream models list my-pipeline --worker 127.0.0.1:9100", "and which of them this worker serves"),
    ),
    "millstream models show": (
        ("millstream models show my-pipeline", "the version that the pipeline names"),
        ("millstream models show my-pipeline latest --json", "the latest one, for programs"),
    ),
    "millstream models fetch": (
        ("millstream models fetch my-pipeline", "into the cache, before a worker starts"),
        ("millstream models fetch my-pipeline 3 --output models", "also copy it to models/my-model/3"),
    ),
    "millstream models diff": (
        ("millstream models diff my-pipeline 1 2", "the signatures"),
        ("millstream models diff my-pipeline champion latest --events events.jsonl", "also the outputs on events"),
    ),
    "millstream models warm": (
        ("millstream models warm my-pipeline latest", "see whether it loads here, and how fast"),
    ),
    "millstream autopilot": (
        ("millstream autopilot my-pipeline", "decide on the rollout until Ctrl-C or SIGTERM"),
        ("millstream autopilot my-pipeline --metrics-port 9102", "with metrics and probes"),
    ),
    "millstream rollout": (
        ("millstream rollout start my-pipeline 2 --strategy manual --share 1%", "1 % of the keys get version 2"),
        ("millstream rollout status my-pipeline", "which version has which share, and what may be done"),
        ('millstream rollout promote my-pipeline --reason "reviewed by Ana"', "version 2 gets all events"),
    ),
    "millstream rollout status": (("millstream rollout status my-pipeline --json", "the state, for programs"),),
    "millstream rollout history": (("millstream rollout history my-pipeline", "who changed what, when and why"),),
    "millstream rollout start": (
        ("millstream rollout start my-pipeline latest", "by the strategy of the pipeline file"),
        ("millstream rollout start my-pipeline 2 --strategy ab --share 20%", "an A/B test"),
        ("millstream rollout start my-pipeline 2 3 --strategy bandit", "two arms beside the baseline"),
    ),
    "millstream rollout step": (
        ('millstream rollout step my-pipeline --reason "no traffic at night"', "the next share"),
    ),
    "millstream rollout promote": (
        ('millstream rollout promote my-pipeline --reason "version 1 fails on the new events"', "100 % at once"),
        ('millstream rollout promote my-pipeline --variant v3 --reason "clear winner"', "an arm of a bandit"),
    ),
    "millstream rollout rollback": (
        ('millstream rollout rollback my-pipeline --reason "customers complain"', "0 % at once"),
    ),
    "millstream rollout pause": (('millstream rollout pause my-pipeline --reason "sales day"', "hold all shares"),),
    "millstream rollout resume": (('millstream rollout resume my-pipeline --reason "it is over"', "go on"),),
    "millstream rollout approve": (
        ('millstream rollout approve my-pipeline --reason "as planned"', "take the next step"),
    ),
    "millstream rollout set": (
        ('millstream rollout set my-pipeline --share 10% --reason "slowly"', "a share of your choice"),
        ('millstream rollout set my-pipeline --key N14228=canary --reason "our test plane"', "one key"),
        ('millstream rollout set my-pipeline --field country=DE:primary --reason "not yet there"', "a field's value"),
    ),
    "millstream rollout wait": (
        ("millstream rollout wait my-pipeline 2 --timeout 6h", "until version 2 is promoted (0) or rolled back (4)"),
    ),
    "millstream schema": (
        ("millstream schema my-pipeline", "as the pipeline writes its predictions"),
        ("millstream schema my-pipeline --json-schema > predictions.schema.json", "a JSON Schema"),
    ),
    "millstream check": (
        ("millstream check my-pipeline", "check the file, the schemas, the model and the topics"),
        ("millstream check my-pipeline --offline", "check all that needs no broker"),
    ),
    "millstream broker": (
        ("millstream broker", "listen on port 9092, until Ctrl-C"),
        ("millstream broker --port 9192", "on another port"),
        ("millstream broker --data kafka-data", "keep topics and events in the folder kafka-data"),
        ("millstream broker --run millstream demo --shadow", "run a command that needs a real broker"),
    ),
    "millstream topics": (
        ("millstream topics create my-pipeline", "create the topics that are missing"),
        ("millstream topics show my-pipeline", "show all topics"),
    ),
    "millstream topics create": (
        ("millstream topics create my-pipeline", "with as many partitions as the input topic has"),
        ("millstream topics create my-pipeline --partitions 8 --replication-factor 3", "for production"),
    ),
    "millstream topics show": (
        ("millstream topics show my-pipeline", "show the topics; exit code 1 if one is missing"),
        ("millstream topics show my-pipeline --json", "one JSON object per topic"),
    ),
    "millstream run": (
        ("millstream run my-pipeline --min 1 --max 4", "1 to 4 workers, as the load needs"),
        ("millstream run my-pipeline --workers 2 --metrics-port 9108", "always 2, with metrics for Prometheus"),
        ("millstream run my-pipeline --log-level info", "with all that the workers log, not only warnings"),
    ),
    "millstream work": (
        ("millstream work my-pipeline", "run until Ctrl-C or SIGTERM"),
        ("millstream work my-pipeline --until-idle", "process the existing events, and end"),
        (
            "millstream work my-pipeline --metrics-port 9108 --log-level warning",
            "with probes and metrics, for a supervisor",
        ),
    ),
    "millstream produce": (
        ("millstream produce my-pipeline events.jsonl", "one JSON object per line"),
        ("millstream produce my-pipeline events.csv --rate 100", "CSV with a header row, 100 events per second"),
        ("millstream produce my-pipeline --skip-bad", "from standard input; report bad rows and continue"),
        ("millstream produce my-pipeline events.jsonl --skip 700", "go on after 700 rows, as an interrupted run said"),
    ),
    "millstream tail": (
        ("millstream tail my-pipeline", "new predictions, until Ctrl-C"),
        ("millstream tail my-pipeline --from-beginning --limit 3 --json", "the first 3 as JSON lines"),
        ("millstream tail my-pipeline --topic dead-letters --timeout 5", "dead letters, until none comes for 5 s"),
    ),
    "millstream dead-letters": (
        ("millstream dead-letters list my-pipeline", "list them, with a summary by reason"),
        ("millstream dead-letters show my-pipeline 0@17", "show one"),
        ("millstream dead-letters replay my-pipeline --dry-run", "see what a replay would write"),
    ),
    "millstream dead-letters list": (
        ("millstream dead-letters list my-pipeline --since 2h", "those of the last two hours"),
        ("millstream dead-letters list my-pipeline --reason unfit --json", "those of one reason, as JSON lines"),
        ("millstream dead-letters list my-pipeline --field customer.age", "those that are about a field"),
    ),
    "millstream dead-letters show": (
        ("millstream dead-letters show my-pipeline 0@17", "the letter in partition 0 at offset 17"),
        ("millstream dead-letters show my-pipeline 0@17 --json", "for programs"),
    ),
    "millstream dead-letters replay": (
        ("millstream dead-letters replay my-pipeline --reason unfit", "those of one reason, after its cause is fixed"),
        ("millstream dead-letters replay my-pipeline --position 0@17 --yes", "one, without a question"),
    ),
    "millstream lag": (
        ("millstream lag my-pipeline", "once"),
        ("millstream lag my-pipeline --watch --interval 5", "every 5 seconds, with the time to drain"),
        ("millstream lag my-pipeline --serve 9109", "for Prometheus, even if no worker runs"),
    ),
    "millstream offsets": (
        ("millstream offsets my-pipeline", "where the group goes on"),
        ("millstream offsets my-pipeline --to 2026-05-01T12:30", "what would be read again; it changes nothing"),
        ("millstream offsets my-pipeline --to 2026-05-01T12:30 --execute", "set the offsets, while no worker runs"),
        ("millstream offsets my-pipeline --to latest --partition events/3 --execute", "those of one partition"),
    ),
    "millstream compare": (
        ("millstream compare my-pipeline", "run the comparison job until Ctrl-C or SIGTERM"),
        ("millstream compare my-pipeline --show", "print the results so far, and which model is better"),
        ("millstream compare my-pipeline --show --json", "for scripts, whose verdict is also the exit code"),
    ),
    "millstream replay": (
        (
            "millstream replay my-pipeline --model v2 --from 2026-05-01 --to 2026-05-08",
            "was it better?",
        ),
        ("millstream replay my-pipeline --model 2 --from 2026-05-01 --to 2026-05-02 --report v2.html", "with plots"),
        (
            "millstream replay my-pipeline --model 2 --from 2026-05-01 --to 2026-05-02 --output copy",
            "to a topic",
        ),
        (
            "millstream replay my-pipeline --model latest --from 2026-05-01 --to 2026-05-02 --rate 2000 --json",
            "for programs",
        ),
    ),
    "millstream report": (
        ("millstream report my-pipeline --output report.html", "the last 24 hours"),
        (
            "millstream report my-pipeline --output may.html --from 2026-05-01 --to 2026-06-01 --segment origin",
            "by a field",
        ),
    ),
    "millstream demo": (
        ("millstream demo", "20,000 flights through two model versions; about a minute"),
        ("millstream demo --events 2000 --plain", "fewer, with one line per second"),
        (
            "millstream broker --run millstream demo --rollout",
            "a better version takes over, a broken one is rolled back",
        ),
        ("millstream broker --run millstream demo --load spike", "how workers are added under load"),
    ),
    "millstream options": (
        ("millstream options", "all options, as Markdown"),
        ("millstream options --json-schema", "for editors that check the file"),
    ),
    "millstream metrics": (("millstream metrics", "a Markdown table"),),
    "millstream docs": (
        ("millstream docs", "list the pages"),
        ("millstream docs models", "print a page"),
        ("millstream docs runbook#millstreamdown", "print a section of a page"),
    ),
    "millstream dashboards": (
        ("millstream dashboards --output monitoring", "write monitoring/grafana and monitoring/prometheus"),
    ),
    "millstream completion": (
        ("millstream completion bash >> ~/.bashrc", "for new shells"),
        ("millstream completion fish > ~/.config/fish/completions/millstream.fish", "for new shells"),
        ("millstream completion zsh > ~/.zfunc/_millstream", "with ~/.zfunc in $fpath"),
    ),
}
"""Command -> (command line, what it does)."""
