"""The table of paths that something runs or obeys. Patterns are those of `.gitignore`, matched in lower case.

A pattern without a slash matches a file or a folder of that name at any depth, so what lies in such a folder,
and a link put in its place, match too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pathspec import GitIgnoreSpec

Level = Literal["never", "runs", "used", "note"]


@dataclass(frozen=True, slots=True)
class PathRule:
    """Paths that match `patterns` (blank-separated) carry the flag `code`. `why`: what runs them, and when."""

    code: str
    level: Level
    why: str
    patterns: str


RULES = (
    PathRule(
        "vcs",
        "never",
        "a version control tool reads this, and may run commands from it, at its next command",
        ".git .hg .svn .jj .bzr _darcs",
    ),
    PathRule(
        "git",
        "runs",
        "git, or a hook manager that git calls, obeys this at the next checkout, commit or push",
        ".gitattributes .gitmodules .gitconfig .lfsconfig .husky .githooks .git-hooks githooks"
        " lefthook.y*ml lefthook.toml lefthook.json lefthook-local.* .lefthook.* .lefthook-local.* .lefthook"
        " .pre-commit-config.y*ml .overcommit.yml .huskyrc* .lintstagedrc* lint-staged.config.* commitlint.config.*"
        " .commitlintrc*",
    ),
    PathRule(
        "editor",
        "runs",
        "an editor runs or obeys this when the folder is opened or a file in it is visited",
        ".vscode *.code-workspace .idea *.iml .nvim.lua .nvimrc .nvim .lazy.lua .neoconf.json .exrc .vimrc .lvimrc"
        " .local.vimrc .vim .dir-locals.el .dir-locals-2.el .devcontainer .devcontainer.json .zed .helix .fleet"
        " *.sublime-project *.sublime-workspace .sublime .ccls .clangd .project .settings .theia .gitpod.yml"
        " .kak .kakrc",
    ),
    PathRule(
        "agent",
        "runs",
        "coding agents take this as instructions, or start the servers it names, in their next session",
        "agents.md agents.override.md claude.md claude.local.md gemini.md .mcp.json mcp.json .claude .cursor"
        " .cursorrules .cursorignore .windsurf .windsurfrules .clinerules .roo .roomodes .roorules .aider* .codex"
        " .gemini .continue .junie .kiro .amazonq .goosehints .rules .agents .agent .opencode opencode.json"
        " **/.github/copilot-instructions.md **/.github/instructions **/.github/prompts **/.github/chatmodes"
        " **/.github/agents",
    ),
    PathRule(
        "shell",
        "runs",
        "a shell, or a tool that hooks into it (direnv, mise, dotenv), loads this on entering the folder or at start",
        ".envrc .env* mise.toml mise.*.toml .mise.toml .mise.*.toml .mise .rtx.toml .tool-versions **/.config/mise"
        " .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin"
        " .zlogout .kshrc .cshrc .tcshrc .login .logout .inputrc .xinitrc .xprofile .xsession .screenrc .tmux.conf"
        " .gdbinit .lldbinit .pdbrc .pdbrc.py .pythonrc .pythonrc.py .irbrc .pryrc .rprofile .renviron .psqlrc"
        " .sqliterc .autoenv .autoenv.zsh devenv.nix devenv.yaml .flox .devbox devbox.json **/.config/fish"
        " .curlrc .wgetrc .netrc .ackrc .ripgreprc",
    ),
    PathRule(
        "python-startup",
        "runs",
        "Python or pytest imports this by itself: at the start of an interpreter, or when any test is collected",
        "conftest.py sitecustomize.py usercustomize.py sitecustomize usercustomize *.pth *.egg-link pyvenv.cfg"
        " .venv venv .virtualenv site-packages dist-packages __pypackages__ .python-version .pythonstartup"
        " python*._pth",
    ),
    PathRule(
        "ci",
        "runs",
        "a CI or hosting service runs this, with its secrets, at the next push",
        "**/.github/workflows **/.github/actions **/.github/dependabot.y*ml action.yml action.yaml .gitlab-ci*.y*ml"
        " .gitlab .circleci .travis.yml azure-pipelines*.y*ml .azure-pipelines jenkinsfile* .drone.y*ml .drone.star"
        " bitbucket-pipelines.yml appveyor.yml .appveyor.yml .buildkite .woodpecker* .cirrus.yml .cirrus.star"
        " .forgejo .gitea .teamcity .semaphore .builds .build.yml cloudbuild.y*ml buildspec*.y*ml codeship-*.yml"
        " wercker.yml .readthedocs.y*ml netlify.toml vercel.json fly.toml render.yaml renovate.json* .renovaterc*"
        " .ci .kokoro .prow.y*ml .sourcehut .lgtm.yml .tekton .pipelines",
    ),
    PathRule(
        "build",
        "used",
        "a build, test or task command runs or obeys this when somebody calls it",
        "pyproject.toml setup.py setup.cfg tox.ini pytest.ini .pytest.ini noxfile.py tasks.py dodo.py fabfile.py"
        " wscript sconstruct sconscript .coveragerc mypy.ini .pylintrc pylintrc hatch.toml hatch_build.py build.py"
        " package.json deno.json* bunfig.toml gulpfile.* gruntfile.* webpack.config.* vite.config.* vitest.config.*"
        " rollup.config.* jest.config.* jest.setup.* babel.config.* .babelrc* .eslintrc* eslint.config.*"
        " .prettierrc* prettier.config.* postcss.config.* tailwind.config.* next.config.* nuxt.config.* karma.conf.*"
        " playwright.config.* cypress.config.* .mocharc* ava.config.* tsconfig*.json nx.json turbo.json lerna.json"
        " makefile gnumakefile *.mk justfile .justfile *.just taskfile*.y*ml cmakelists.txt *.cmake"
        " cmakepresets.json configure configure.ac *.m4 meson.build meson_options.txt *.bazel *.bzl workspace.bzlmod"
        " .bazelrc build.ninja build.rs cargo.toml **/.cargo/config* .cargo rust-toolchain* rakefile gemfile *.gemspec"
        " build.gradle* settings.gradle* gradle.properties gradlew* **/gradle/wrapper pom.xml mvnw* .mvn build.xml"
        " build.sbt **/project/*.sbt **/project/plugins.sbt package.swift podfile fastfile mix.exs rebar.config"
        " stack.yaml *.cabal dune-project *.opam composer.json magefile.go go.mod go.work *.csproj *.fsproj"
        " *.vcxproj *.sln directory.build.* *.targets *.props nuget.config flake.nix default.nix shell.nix procfile"
        " earthfile tiltfile skaffold.y*ml manage.py wsgi.py",
    ),
    PathRule(
        "dependencies",
        "used",
        "it decides what code is downloaded, and run, at the next install",
        "requirements*.txt requirements*.in constraints*.txt **/requirements/*.txt pipfile pipfile.lock poetry.lock"
        " pdm.lock uv.lock uv.toml conda*.y*ml environment*.y*ml pip.conf pip.ini .pypirc package-lock.json"
        " npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml bun.lock bun.lockb deno.lock .npmrc .yarnrc"
        " .yarnrc.yml .yarn .pnp.* .pnpmfile.cjs node_modules .nvmrc .node-version cargo.lock gemfile.lock"
        " composer.lock go.sum flake.lock mix.lock pubspec.yaml pubspec.lock podfile.lock package.resolved"
        " packages.lock.json gradle.lockfile **/gradle/*.versions.toml vendor pylock*.toml",
    ),
    PathRule(
        "container",
        "used",
        "a container or virtual machine is built or started from it when somebody calls docker, compose or vagrant",
        "dockerfile* *.dockerfile containerfile* .dockerignore compose*.y*ml docker-compose*.y*ml docker-bake.*"
        " vagrantfile *.kube.y*ml kustomization.y*ml chart.yaml helmfile.y*ml",
    ),
    PathRule(
        "infrastructure",
        "used",
        "infrastructure is changed from it when somebody plans or applies it",
        "*.tf *.tf.json *.tfvars *.tfvars.json *.hcl .terraformrc pulumi*.y*ml serverless.y*ml template.y*ml cdk.json"
        " ansible.cfg playbook*.y*ml **/playbooks/*.y*ml samconfig.toml *.bicep",
    ),
    PathRule(
        "generated",
        "note",
        "it looks generated: the tool that makes it will overwrite it, and nobody reads it line by line",
        "*.min.js *.min.css *.map *_pb2.py *_pb2_grpc.py *.pb.go *.generated.* *.g.dart dist *.egg-info *.dist-info"
        " .tox .nox .eggs .coverage htmlcov coverage.xml .hypothesis .ipynb_checkpoints .ds_store *.pyo *.pyd *.class"
        " *.orig *.rej",
    ),
)


_WELL_KNOWN = """
pytest _pytest pluggy iniconfig py pip setuptools pkg_resources wheel _distutils_hack distutils hatchling flit_core
poetry uv tox nox coverage hypothesis yaml requests urllib3 certifi idna charset_normalizer httpx httpcore anyio
aiohttp numpy scipy pandas matplotlib torch tensorflow sklearn django flask fastapi starlette pydantic jinja2
markupsafe click typer rich attr attrs six dateutil pytz tzdata typing_extensions packaging platformdirs filelock
virtualenv sqlalchemy alembic celery redis boto3 botocore cryptography jwt lxml bs4 PIL psutil dotenv black ruff
mypy isort flake8 pylint sphinx docutils IPython ipykernel jedi parso pygls lsprotocol debugpy twisted gevent
greenlet grpc google protobuf toml tomli tomlkit colorama tqdm regex simplejson ujson orjson msgpack zmq tornado
gunicorn uvicorn werkzeug
"""
WELL_KNOWN_MODULES = frozenset(_WELL_KNOWN.split())
"""Top-level modules that many environments have, for where the real list is not given."""


@cache
def _spec(rule: PathRule) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(rule.patterns.split())


def matching_rules(path: str) -> list[PathRule]:
    """The rules that speak of a path (relative, posix), in the order of the table."""
    lowered = path.lower()
    return [rule for rule in RULES if _spec(rule).match_file(lowered)]
