"""Bad input to the config: where it is, what is wrong, what would be right."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
import yaml

from nnilite._running import launch
from nnilite.config import ConfigErrors, ExperimentConfig, from_dict, load
from nnilite.config._fields import camel
from nnilite.config.text import read_space
from nnilite.errors import ConfigError, SpaceError

pytestmark = pytest.mark.usefixtures("platforms")

GOOD = """\
searchSpace:
  x: {_type: uniform, _value: [0, 1]}
trialCommand: python3 trial.py
trialConcurrency: 2
tuner:
  name: TPE
trainingService:
  platform: local
"""


def write(folder, text):
    file = folder / "it's $x.yaml"
    file.write_text(text, "utf-8")
    return file


def fault(folder, text):
    """The only fault of a file."""
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text)).checked()
    assert not isinstance(caught.value, ConfigErrors), str(caught.value)
    return caught.value


def with_line(line, old=None):
    return GOOD.replace(old, line) if old else GOOD + line + "\n"


def test_architecture_search_is_refused_with_its_reason_and_a_way(tmp_path):
    found = str(fault(tmp_path, with_line("experimentType: NAS")))
    assert "experimentType: neural architecture search is not available; remove this line, and describe the" in found


OPEVO = GOOD.replace("uniform, _value: [0, 1]", "factor, _value: [1024, 3]")


@pytest.mark.parametrize(
    ("tuner", "reason"),
    [
        ("{name: OpEvo}", r"tuner\.name: there is no such algorithm as 'OpEvo'"),
        ("{className: opevo.OpEvo, codeDirectory: gone}", r"tuner\.codeDirectory: the folder .* does not exist"),
        ("{className: OpEvo}", "is not of the form module.Class"),
    ],
)
def test_types_that_only_a_missing_tuner_knows_are_not_called_wrong(tmp_path, tuner, reason):
    assert re.search(reason, str(fault(tmp_path, OPEVO.replace("tuner:\n  name: TPE", f"tuner: {tuner}"))))


def test_other_faults_of_the_search_space_are_told_beside_those_of_the_tuner(tmp_path):
    text = GOOD.replace("name: TPE", "name: Tpee").replace("[0, 1]", "[1, 0]")
    with pytest.raises(ConfigErrors) as caught:
        load(write(tmp_path, text)).checked()
    assert len(caught.value.errors) == 2


def test_a_type_that_is_nearly_known_is_a_slip_whatever_the_tuner_is(tmp_path):
    text = GOOD.replace("name: TPE", "name: Tpee").replace("uniform", "unifrm")
    with pytest.raises(ConfigErrors, match="did you mean 'uniform'"):
        load(write(tmp_path, text)).checked()


@pytest.mark.parametrize("below", ["", "/search"])
def test_a_working_directory_that_is_a_file_is_refused_with_its_line(tmp_path, below):
    (tmp_path / "taken").touch()
    found = fault(tmp_path, with_line(f"experimentWorkingDirectory: taken{below}"))
    assert (found.place.line, found.place.field) == (9, "experimentWorkingDirectory")
    assert "is a file; give a folder" in found.message


def test_a_working_directory_that_cannot_be_made_is_refused_with_its_line(tmp_path, monkeypatch):
    config = load(write(tmp_path, with_line("experimentWorkingDirectory: later"))).checked()
    (tmp_path / "later").touch()
    with pytest.raises(ConfigError, match=r":9: experimentWorkingDirectory: the folder '.*/later/\w+' cannot be made"):
        launch.create(config)


def test_the_file_used_here_is_good(tmp_path):
    assert load(write(tmp_path, GOOD)).checked().trial_concurrency == 2


@pytest.mark.parametrize(
    ("text", "line", "field", "reason"),
    [
        (with_line("trialConcurency: 2", "trialConcurrency: 2"), 4, "trialConcurency", "did you mean trialConcurrency"),
        (with_line("maxTrialNumbr: 2"), 9, "maxTrialNumbr", "did you mean maxTrialNumber?"),
        (with_line("maxTrialNumber: 2.0"), 9, "maxTrialNumber", "whole number, not 2.0; write 2"),
        (with_line('maxTrialNumber: "2"'), 9, "maxTrialNumber", "whole number, not '2'; write 2 without quotes"),
        (with_line('trialGpuNumber: "1"'), 9, "trialGpuNumber", "whole number, not '1'; write 1 without quotes"),
        (with_line('debug: "yes"'), 9, "debug", "true or false, not 'yes'; write true without quotes"),
        (with_line("maxTrialNumber: true"), 9, "maxTrialNumber", "whole number, not True"),
        (
            with_line("trialConcurrency: 100000", "trialConcurrency: 2"),
            4,
            "trialConcurrency",
            "from 1 to 99999, not 100000",
        ),
        (with_line("maxTrialNum: 2"), 9, "maxTrialNum", "did you mean maxTrialNumber?"),
        (with_line("logDir: x"), 9, "logDir", "did you mean experimentWorkingDirectory?"),
        (with_line("  builtinTunerName: TPE", "  name: TPE"), 6, "tuner.builtinTunerName", "did you mean name?"),
        (with_line("tuner: TPE", "tuner:\n  name: TPE"), 5, "tuner", "did you mean {name: TPE}?"),
        (
            with_line("trainingService: local", "trainingService:\n  platform: local"),
            7,
            "trainingService",
            "{platform: l",
        ),
        (
            with_line("useAnnotation: true", "searchSpace:\n  x: {_type: uniform, _value: [0, 1]}"),
            1,
            "useAnnotation",
            "",
        ),
        (with_line("trialCodeDirectory: it's $x.yaml"), 9, "trialCodeDirectory", "is no folder"),
        (with_line("maxTrialNumber: 0"), 9, "maxTrialNumber", "from 1 to 1000000000"),
        (with_line("maxTrialDuration: 90 min"), 9, "maxTrialDuration", "unknown unit 'min'"),
        (with_line("maxOutputSize: 8g"), 9, "maxOutputSize", "unknown unit 'g'; did you mean 8gb?"),
        (with_line("maxOutputSize: 8Gi"), 9, "maxOutputSize", "unknown unit 'gi'; did you mean 8gb?"),
        (with_line("experimentName: {your_name}"), 9, "experimentName", "your own value in place of {your_name}"),
        (with_line("maxTrialNumber: {N}"), 9, "maxTrialNumber", "your own value in place of {N}"),
        (with_line("lr: {_type: uniform, _value: [0, 1]}"), 9, "lr", "indent it below searchSpace"),
        (with_line("trialCodeDirectory: gone"), 9, "trialCodeDirectory", "the folder '.*gone' does not exist"),
        (with_line("logLevel: warn"), 9, "logLevel", "did you mean warning?"),
        (with_line("logLevel: loud"), 9, "logLevel", "it must be fatal or critical or"),
        (
            with_line("useAnnotation: true"),
            9,
            "useAnnotation",
            "`nnictl config expand CONFIG`",
        ),
        (with_line("experimentType: nas"), 9, "experimentType", "neural architecture search is not available"),
        (with_line("experimentType: hyper"), 9, "experimentType", "it must be hpo"),
        (with_line("experimentName: 12"), 9, "experimentName", "put it in quotes"),
        (with_line("debug: 'yes'"), 9, "debug", "true or false"),
        (with_line("searchSpaceFile: gone.json"), 9, "searchSpaceFile", "does not exist"),
        (with_line("codeLimits: {maxFile: 3}"), 9, "codeLimits.maxFile", "did you mean maxFiles"),
        (with_line("codeLimits: 3"), 9, "codeLimits", "must be a mapping with maxFiles"),
        (with_line("retryOn: [1, x]"), 9, r"retryOn\[1\]", "whole number, not 'x'"),
        (with_line("retryOn: 1"), 9, "retryOn", r"must be a list, not 1; write \[1\]"),
        (with_line("trackers: mlflow"), 9, "trackers", r"did you mean \[{name: mlflow}\]\?"),
        (with_line("webhooks: nothing"), 9, "webhooks", "must be a list, not 'nothing'$"),
        (with_line("checkpoint: best"), 9, "checkpoint", "did you mean {keep: best}"),
        (with_line("checkpoint: newest"), 9, "checkpoint", "not 'newest'$"),
        (with_line("distributed: 2"), 9, "distributed", "did you mean {nodes: 2}"),
        (with_line("distributed: {processesPerNode: all}"), 9, "distributed.processesPerNode", "integer > 0 or gpu"),
        (with_line("  direction: minimize", "  name: TPE"), 6, "tuner.direction", "optimize_mode: minimize in"),
        (with_line("  name: local", "  platform: local"), 7, "trainingService", "not set; write platform: local"),
        (with_line("  local: {}", "  platform: local"), 7, "trainingService", "not set; write platform: local"),
        (with_line("trainingService:", "trainingService:\n  platform: local"), 7, "trainingService", "is empty"),
        (GOOD.replace("  x: {_type: uniform, _value: [0, 1]}\n", ""), 1, "searchSpace", "there is no search space"),
        (with_line("  nam: TPE", "  name: TPE"), 6, "tuner.nam", "did you mean name"),
        (with_line("  name: TPEE", "  name: TPE"), 6, "tuner.name", "no such algorithm as 'TPEE'"),
        (with_line("tuner: TPE\nassessor:\n  name: Medianstop", "tuner:\n  name: TPE"), 5, "tuner", "not 'TPE'"),
        (with_line("  className: Mine", "  name: TPE"), 6, "tuner.className", "not of the form module.Class"),
        (with_line("  className: gone.Mine", "  name: TPE"), 6, "tuner.className", "no module 'gone'"),
        (with_line("  name: TPE\n  className: a.B", "  name: TPE"), 5, "tuner", "needs either name"),
        (with_line("  platform: locl", "  platform: local"), 8, "trainingService.platform", "Installed: cloud, local"),
        (with_line("  plattform: local", "  platform: local"), 7, "trainingService", "installed are cloud, local"),
        (with_line("  useActivGpu: true"), 9, "trainingService.useActivGpu", "did you mean useActiveGpu"),
        (with_line("  trialComand: x"), 9, "trainingService.trialComand", "did you mean trialCommand"),
        (with_line("  trialGpuNumber: 1"), 7, "trainingService.useActiveGpu", "is needed where"),
        (with_line("  gpuIndices: 0,0"), 9, "trainingService.gpuIndices", "not a list of GPU|names a GPU twice"),
        (with_line("_value: [1, 0]", "_value: [0, 1]"), 2, "searchSpace.x._value", "is above high"),
        (with_line("_value: [0, a]", "_value: [0, 1]"), 2, r"searchSpace.x._value\[1\]", "must be a number"),
        (with_line("trial_concurrency: 3"), 9, "trial_concurrency", "twice, in two spellings"),
        (with_line("trialConcurrency: 3"), 9, "trialConcurrency", "is given twice, first on line 4"),
    ],
)
def test_a_fault_has_its_line_its_field_and_what_would_be_right(tmp_path, text, line, field, reason):
    error = fault(tmp_path, text)
    assert (error.place.line, error.place.field) == (line, field.replace("\\", ""))
    assert re.search(reason, error.message)
    assert str(error).startswith(f"{tmp_path}/it's $x.yaml:{line}: ")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("trialCommand: python3 trial.py\n", "trialCommand is not set"),
        ("trialConcurrency: 2\n", "trialConcurrency is not set"),
        ("trainingService:\n  platform: local\n", "trainingService is not set"),
        ("searchSpace:\n  x: {_type: uniform, _value: [0, 1]}\n", "there is no search space"),
    ],
)
def test_a_missing_field_is_named(tmp_path, missing, reason):
    assert reason in str(fault(tmp_path, GOOD.replace(missing, "")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("- a\n", "is not a mapping of fields"),
        ("a: [1\n", "is not YAML"),
        ("a:\n\tb: 1\n", "indent with spaces, not tabs"),
        ("a: 1\t# of them\n", "and write none before a comment"),
        ("a: 1\nb:2\nc: 3\n", "write a space after each colon"),
        ("a: !!python/object:os.system x\n", "creates a Python object"),
        ("!!python/object/apply:collections.OrderedDict\n- []\n", "write yaml.dump(json.loads(json.dumps(config)))"),
        ("a: !!python/object/apply:pathlib.PosixPath [/, root]\n", "such as a path, as text"),
        ("a: !own x\n", "remove the tag, and write the value itself"),
        ("a: 1\nb 2\nc: 3\n", ":2: is not YAML: while scanning a simple key"),
        ("a: python3 x.py --of: 5\n", "put a value with a colon and a space in it in quotes"),
        ("a: 1\n b: 2\n", "begin the line below the first letter of the field that it follows"),
        ("a: @x\n", "put the value in quotes"),
        ("a: &x [*x]\n", "contains itself"),
        ("a: 1\n---\nb: 2\n", "remove the line ---"),
        ('{"a": 1, // of them\n "b": 2}\n', "begin comments with #"),
        ('{\n //a: 1\n "b": 2}\n', "begin comments with #"),
        ("```yaml\na: 1\n```\n", "remove the lines that begin with ```"),
        ("a\uff1a 1\nb: 2\n", "write a colon (:) and a space in place of '\\uff1a'"),
        ("a: {b: 1\uff0c c: 2: 3}\n", "write a comma (,) in place of"),
        ("a: " + "[" * 3000 + "]" * 3000, "is nested too deep"),
        ("a: 1\nb: \0\n", ":2: contains a character that cannot be in text, '\\x00'"),
    ],
)
def test_a_file_that_is_no_config_gets_a_sentence(tmp_path, text, reason):
    error = fault(tmp_path, text)
    assert reason in str(error)
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("name", "reason"),
    [("config.toml", "is TOML"), ("train.py", "trialCommand: python3 PROGRAM"), ("train.ipynb", "is a notebook")],
)
def test_a_file_that_other_programs_read_is_answered_by_its_kind(tmp_path, name, reason):
    (tmp_path / name).write_text("import nni\n", "utf-8")
    with pytest.raises(ConfigError, match=f"{name}: .*{reason}"):
        load(tmp_path / name)


def test_a_missing_file_is_answered_with_one_of_nearly_its_name(tmp_path):
    write(tmp_path, GOOD).rename(tmp_path / "config.yaml")
    (tmp_path / "other.txt").touch()
    with pytest.raises(ConfigError, match=r"conf\.yml: cannot be read: .*did you mean .*/config\.yaml\?"):
        load(tmp_path / "conf.yml")
    with pytest.raises(ConfigError, match=r"No such file or directory$"):
        load(tmp_path / "other")


def test_a_file_that_is_missing_or_no_text_gets_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "gone.yaml")
    (tmp_path / "b.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        load(tmp_path / "b.yaml")


def test_all_faults_of_a_file_are_told_in_the_order_of_its_lines(tmp_path):
    text = GOOD.replace("[0, 1]", "[1, 0]").replace("trialConcurrency", "trialConcurency") + "maxTrialNumber: x\n"
    with pytest.raises(ConfigErrors) as caught:
        load(write(tmp_path, text))
    assert [error.place.line for error in caught.value.errors] == [2, 4, 9]


def test_a_fault_in_the_search_space_file_names_that_file(tmp_path):
    (tmp_path / "s.json").write_text('{\n\t"x": {\n\t\t"_type": "unifrm", "_value": [0, 1]}}', "utf-8")
    text = GOOD.replace("searchSpace:\n  x: {_type: uniform, _value: [0, 1]}", "searchSpaceFile: s.json")
    error = fault(tmp_path, text)
    assert isinstance(error, SpaceError)
    assert str(error) == f"{tmp_path}/s.json:3: x._type: there is no type 'unifrm'; did you mean 'uniform'?"


def test_a_search_space_file_that_is_no_json_says_on_which_line(tmp_path):
    (tmp_path / "s.json").write_text('{\n\t"x": {\n\t"_type" "uniform"}}', "utf-8")
    text = GOOD.replace("searchSpace:\n  x: {_type: uniform, _value: [0, 1]}", "searchSpaceFile: s.json")
    assert str(fault(tmp_path, text)).startswith(f"{tmp_path}/s.json:3: is not JSON")


def test_a_field_that_is_twice_with_the_same_plain_value_is_taken(tmp_path):
    (tmp_path / "config.yml").write_text(with_line("trialConcurrency: 2"), "utf-8")
    assert load(tmp_path / "config.yml").trial_concurrency == 2


def test_a_parameter_that_is_twice_in_the_search_space_file_is_told(tmp_path):
    one = '"x": {"_type": "choice", "_value": [1]}'
    (tmp_path / "s.json").write_text(f"{{{one},\n{one}}}", "utf-8")
    text = GOOD.replace("searchSpace:\n  x: {_type: uniform, _value: [0, 1]}", "searchSpaceFile: s.json")
    assert str(fault(tmp_path, text)) == f"{tmp_path}/s.json:2: x: is given twice, first on line 1"


def test_both_search_space_and_file_are_refused(tmp_path):
    (tmp_path / "s.json").write_text("{}", "utf-8")
    assert "not both" in str(fault(tmp_path, with_line("searchSpaceFile: s.json")))


def test_numbers_without_a_point_are_numbers_in_the_search_space_only(tmp_path):
    text = GOOD.replace("[0, 1]", "[1e-5, 1e0]") + "experimentName: 1e5\n"
    config = load(write(tmp_path, text)).checked()
    assert config.search_space["x"]["_value"] == [1e-5, 1.0]
    assert config.experiment_name == "1e5"


def test_anchors_and_merged_mappings_keep_their_lines(tmp_path):
    text = GOOD.replace("trainingService:\n", "trainingService:\n  <<: &x {useActivGpu: 1}\n")
    error = fault(tmp_path, text)
    assert (error.place.field, error.place.line) == ("trainingService.useActivGpu", 8)


def test_a_plugin_s_own_rule_is_located(tmp_path):
    text = GOOD.replace("platform: local", "platform: cloud\n  machineList:\n    - {host: a, user: b, port: 0}")
    error = fault(tmp_path, text)
    assert (error.place.field, error.place.line) == ("trainingService.machineList[0].port", 10)
    assert "from 1 to 65535" in error.message


def test_python_gets_the_same_sentences():
    config = ExperimentConfig("local", search_space={}, trial_command="x", trial_concurrency=1.5)
    config.tuner.name = "TPE"
    with pytest.raises(ConfigErrors, match="trialConcurrency: must be a whole number"):
        config.checked()


@pytest.mark.parametrize("value", [None, 3, "x", [], [3], {}, {"platform": 3}, {"platform": None}, [[]]])
def test_whatever_stands_for_the_training_service_gives_a_config_error(value):
    with pytest.raises(ConfigError):
        from_dict({**yaml.safe_load(GOOD), "trainingService": value}).checked()


@pytest.mark.parametrize("value", [-1, 1.5, [None], {"a": object()}, {1: 2}, b"x"])
def test_no_value_of_any_field_gives_another_error_than_a_config_error(value):
    takes_numbers = {"stop_at_value"} if isinstance(value, (int, float)) else set()
    for field in sorted({field.name for field in fields(ExperimentConfig)} - takes_numbers):
        config = from_dict(yaml.safe_load(GOOD))
        setattr(config, field, value)
        with pytest.raises(ConfigError, match=camel(field)):
            config.checked()


def test_an_empty_platform_of_the_older_format_gets_the_names(tmp_path):
    assert "is empty; write local, remote" in str(fault(tmp_path, "trainingServicePlatform:\nsearchSpacePath: x\n"))


def test_an_option_that_is_given_twice_is_a_warning(tmp_path):
    text = GOOD.replace("{_type: uniform, _value: [0, 1]}", "{_type: choice, _value: [1, 2, 1]}")
    config = load(write(tmp_path, text)).checked()
    assert "searchSpace.x._value[2]: 1 is given twice, and counts once" in config.warnings
    assert config.search_space["x"]["_value"] == [1, 2]


@pytest.mark.parametrize("path", ["${PROJECT}/logs", "$HOME/nni", "%USERPROFILE%/nni", "/home/{your_name}", "<folder>"])
def test_a_path_with_a_variable_is_refused_as_nothing_replaces_it(tmp_path, path):
    error = fault(tmp_path, GOOD + f"experimentWorkingDirectory: '{path}'\n")
    assert "which is not replaced here; write the path itself" in error.message
    assert not [one for one in tmp_path.iterdir() if one.is_dir()]


def test_a_folder_whose_name_looks_like_a_variable_is_used(tmp_path):
    (tmp_path / "$x").mkdir()
    for path in ("$x", "$x/home"):
        checked = load(write(tmp_path, GOOD + f"experimentWorkingDirectory: {path}\n")).checked()
        assert checked.experiment_working_directory == tmp_path / path


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD.replace("python3 trial.py", "[cd src, python3 trial.py]"), "as in cd src && python3 trial.py"),
        (GOOD + "experimentWorkingDirectory: s3://bucket/x\n", "is an address; write the path of a folder"),
        (GOOD + "trialCodeDirectory: git@example.org:me/code.git\n", "is an address; write the path of a folder"),
        (GOOD + "trialCodeDirectory: .\\src\n", "is a path of Windows; write './src'"),
        (GOOD + "experimentWorkingDirectory: \u201c/tmp/x\u201d\n", "remove quotation marks and line ends"),
        (GOOD + "experimentWorkingDirectory: 'exps '\n", "has spaces around it; write 'exps'"),
        (GOOD + f"experimentWorkingDirectory: {'x' * 300}\n", "has a name of more than 255 bytes; shorten it"),
        (GOOD + "experimentWorkingDirectory: /proc/nni\n", "no folder can be made in '/proc'; give one of your own"),
        (GOOD + "maxExperimentDuration: 1:30\n", "'1:30' is not a number with a unit"),
        (GOOD + "maxTrialNumber: 10000000000\n", "must be from 1 to 1000000000"),
        (GOOD + "searchFrom: abcdefgh\n", "must be a list, not 'abcdefgh'; write [abcdefgh]"),
        (GOOD + f"searchFrom: [{'a' * 300}]\ntrialConcurrency2: 1\n", "there is no such field"),
        (GOOD.replace("name: TPE", f"className: {'a' * 300}.Mine"), "there is no module 'aaa"),
        (GOOD.replace("python3 trial.py", '"python3 \\0.py"'), "has a null character, which no command can have"),
        (GOOD.replace("trialConcurrency: 2", "trialConcurrency: 999999999**99"), "a whole number, not '999999999**99'"),
        (GOOD + "env: {A: 1}\n", "write variables in front of trialCommand, as in trialCommand: DATA=/data python3"),
        (GOOD.replace("trialCommand: python3 trial.py", "trialCommand: ' '"), "trialCommand is not set"),
        (GOOD.replace("python3 trial.py", "[python3, trial.py, --lr, 1]"), "not a list; write python3 trial.py --lr 1"),
        (GOOD + "experimentName: [a, b]\n", "not a list; write a,b for several names, a b for a command"),
        (
            GOOD.replace("python3 trial.py", "[cd src, python3 a.py]"),
            "join commands by &&, as in cd src && python3 a.py",
        ),
        (GOOD + 'experimentWorkingDirectory: "C:\\Users\\me"\n', "use single quotes, or / in paths"),
        (GOOD.replace("trialConcurrency: 2", "trialConcurrency: {{ n }}"), "fill in {{ }} of a template first"),
    ],
)
def test_what_people_copy_from_elsewhere_is_answered_with_a_cure(tmp_path, text, sentence):
    assert sentence in fault(tmp_path, text).message


def test_an_empty_folder_is_one_that_is_not_given(tmp_path):
    text = GOOD + "trialCodeDirectory: ''\nexperimentWorkingDirectory: ''\n"
    checked = load(write(tmp_path, text)).checked()
    assert checked.settings("local").trial_code_directory == tmp_path
    assert checked.experiment_working_directory == load(write(tmp_path, GOOD)).checked().experiment_working_directory


@pytest.mark.parametrize("written", ["1.5e3", "1.e3", "15e+2", ".15E4"])
def test_numbers_with_an_exponent_are_numbers_in_the_search_space(tmp_path, written):
    text = GOOD.replace("{_type: uniform, _value: [0, 1]}", f"{{_type: choice, _value: [{written}, 2]}}")
    assert text != GOOD
    assert load(write(tmp_path, text)).checked().search_space["x"]["_value"][0] in (1500, 1000)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{\n  // the rate\n  "x": 1}', ":2: is not JSON: .*JSON has no comments: remove them, or begin them with #"),
        ('{"x": 1, /* no */ "y": 2}', "JSON has no comments"),
        ('{"x": ["C:\\data"]}', r":1: is not JSON: .*escape.*; write \\\\ for each \\, or / in paths"),
        ('search_space = {"x": 1}', "remove what is in front of the first {"),
        ('{"x": 1}\n{"y": 2}', ":2: is not JSON: .*put all parameters into one object"),
        ('{"x": 1\n"y": 2}', ":2: is not JSON: .*write a comma at the end of the line before"),
        ('{"x": {"y": [1, 2\n}}', ":2: is not JSON: .*a bracket before is not closed"),
    ],
)
def test_a_space_that_is_nearly_json_is_answered_with_what_to_remove(tmp_path, text, sentence):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_space(tmp_path / "s.json")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_space_with_tabs_and_a_comma_too_many_is_read_in_each_encoding_of_windows(tmp_path, encoding):
    (tmp_path / "s.json").write_bytes('{\r\n\t"größe": {\r\n\t\t"_value": [1e-7, 1],\t},\r\n}'.encode(encoding))
    assert read_space(tmp_path / "s.json")[0] == {"größe": {"_value": [1e-7, 1]}}


def test_a_file_in_another_encoding_names_the_line_and_the_cure(tmp_path):
    (tmp_path / "c.yml").write_bytes("a: 1\nb: größe\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"c.yml:2: is not text in UTF-8 \(byte 10\); save it as UTF-8"):
        load(tmp_path / "c.yml")


@pytest.mark.parametrize(
    ("class_name", "reason"),
    [
        ("Mine", "'Mine' is not of the form module.Class; write my_tuner.Mine"),
        ("my_tuner.py", "'my_tuner.py' is a file; write my_tuner.Mine"),
        ("my_tuner.Yours", "there is no class 'Yours' in .*my_tuner.py'; its classes are Mine, Other"),
        ("gone.Mine", "there is no module 'gone' in "),
    ],
)
def test_a_class_that_is_not_there_is_answered_with_those_that_are(tmp_path, class_name, reason):
    (tmp_path / "my_tuner.py").write_text("class Mine: pass\nclass Other: pass\n")
    error = fault(tmp_path, GOOD.replace("name: TPE", f"className: {class_name}"))
    assert (error.place.field, error.place.line) == ("tuner.className", 6)
    assert re.search(reason, error.message)


@pytest.mark.parametrize("source", ["from x import Mine\n", "from x import *\n", "Mine = make()\n", "if 1: (\n", "\0"])
def test_a_class_that_may_be_there_is_left_to_the_tuner_host(tmp_path, source):
    (tmp_path / "my-tuner.py").write_text(source)
    checked = load(write(tmp_path, GOOD.replace("name: TPE", "className: my-tuner.Mine"))).checked()
    assert checked.tuner.class_name == "my-tuner.Mine"


def test_a_space_from_python_may_have_numbers_and_arrays_of_numpy():
    numpy = pytest.importorskip("numpy")
    values = {"a": list(numpy.arange(2)), "b": numpy.linspace(0, 1, 3), "c": range(3)}
    space = {name: {"_type": "choice", "_value": value} for name, value in values.items()}
    checked = from_dict({**yaml.safe_load(GOOD), "searchSpace": space}).checked()
    assert [one["_value"] for one in checked.search_space.values()] == [[0, 1], [0.0, 0.5, 1.0], [0, 1, 2]]


@pytest.mark.parametrize(
    "space",
    ["{x: *shared, y: *shared}", "{x: {<<: *shared}}", "{x: {_type: uniform, _value: *range}}"],
)
def test_a_field_that_only_holds_an_anchor_says_where_anchors_go(tmp_path, space):
    anchors = "shared: &shared {_type: uniform, _value: &range [0, 1]}\n"
    rest = "trialCommand: 'true'\ntrialConcurrency: 1\ntrainingService: {platform: local}\n"
    (tmp_path / "config.yaml").write_text(f"{anchors}searchSpace: {space}\n{rest}")
    with pytest.raises(ConfigError, match=r"config\.yaml:1: shared: .*anchor \(&name\) where the value is used first"):
        load(tmp_path / "config.yaml")
