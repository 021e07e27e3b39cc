package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/install"
	"splash/internal/media"
	"splash/internal/server"
	"splash/internal/target"
	"splash/internal/vision"
)

// modelFlags say which model is opened, and how.
type modelFlags struct {
	sourceFlags
	model, dir, draft, backend, rows string
	noDraft                          bool
	context                          tokensValue
}

func (m *modelFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.dir, "model-dir", "", "GGUF `file`, any part of a split GGUF, or model directory (default the demonstration model)")
	f.StringVar(&m.model, "model", "", "`OWNER/REPO[:VARIANT]` to install from the Hub; with --model-dir, its name alone")
	m.sourceFlags.flags(cmd)
	f.StringVar(&m.draft, "draft-model", "", "DFlash2 `draft`: a directory, or with --model a repository too (default the family's)")
	f.BoolVar(&m.noDraft, "no-draft", false, "decode without a draft, one token a cycle")
	f.StringVar(&m.backend, "backend", target.Auto, "`backend` to compute on: "+strings.Join(backendNames(), ", "))
	f.StringVar(&m.rows, "verify-rows", "auto", "drafted `rows` the model verifies: auto or all")
	f.Var(&m.context, "max-context", "`tokens` of prompt and answer together, at most")
	complete(cmd, "backend", backendNames()...)
	complete(cmd, "verify-rows", "auto", "all")
	_ = cmd.RegisterFlagCompletionFunc("model", completeModelFlag)
	_ = cmd.MarkFlagDirname("draft-model")
	_ = cmd.MarkFlagFilename("model-dir", "gguf")
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func backendNames() []string {
	names := []string{target.Auto}
	for _, b := range target.Backends() {
		names = append(names, b.Name)
	}
	return names
}

// check refuses what no model could make right.
func (m *modelFlags) check() error {
	if err := m.sourceFlags.check(m.model, m.dir); err != nil {
		return err
	}
	if m.model != "" {
		draft := m.draft
		if m.dir != "" {
			draft = "" // a path alone
		}
		if _, err := m.selection(m.model, draft); err != nil {
			return err
		}
	}
	if m.noDraft && m.draft != "" {
		return usagef("--no-draft cannot be combined with --draft-model")
	}
	if err := oneOf("backend", m.backend, backendNames()...); err != nil {
		return err
	}
	return oneOf("verify-rows", m.rows, "auto", "all")
}

// open loads the model, the installed one unless that is nil, with a bar where it takes long.
func (m *modelFlags) open(
	cmd *cobra.Command, at *install.Installed, o target.Options, log func(line string),
) (*target.Target, error) {
	o.Engine.Context = int(m.context)
	o.Engine.Log = log
	const steps = 1000
	b := newBar(cmd, "Loading", steps)
	defer b.done()
	o.Path, o.Name, o.Draft, o.NoDraft, o.Installed, o.Backend = m.dir, m.model, m.draft, m.noDraft, at, m.backend
	o.Chat, o.Log = true, log
	o.Progress = func(done, total int64) { b.set(int(steps * done / total)) }
	t, err := target.Open(cmd.Context(), o)
	if err == nil && m.rows == "auto" && t.Plan.Layout.MoE.Experts > 0 {
		t.Engine.Rows = engine.BudgetRows
	}
	if err == nil && log != nil {
		log(verifyRows(t))
	}
	return t, err
}

// verifyRows says which drafted rows the target verifies, and why.
func verifyRows(t *target.Target) string {
	switch {
	case t.Draft == nil:
		return "Verify rows: 1 (no draft)"
	case t.Engine.Rows == engine.BudgetRows:
		return "Verify rows: budget (MoE target; --verify-rows all verifies every row)"
	case t.Plan.Layout.MoE.Experts == 0:
		return "Verify rows: all (dense target)"
	}
	return "Verify rows: all (--verify-rows all)"
}

// serveFlags are those of serve beside its model's.
type serveFlags struct {
	modelFlags
	memoryFlags
	host, key, effort       string
	port                    uint16
	hosts, origins, aliases []string
	announce                bool
	body                    sizeValue
	timeout                 durationValue
	queue, lanes            int
	imagePixels             int
	noPage                  bool
}

func newServe() *cobra.Command {
	s := &serveFlags{body: 128 << 20}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a model over HTTP",
		Long: `Load a model and answer requests until Ctrl+C.

With --model a model of the Hugging Face Hub is installed, or the installed one followed to the commit that its revision
names now; where the Hub does not answer, the installed one is served. --model-dir serves local files. Without either
the built-in demonstration model is served: small, but it answers, thinks and calls tools. Clients of OpenAI's and
Anthropic's interfaces work with the base URLs http://127.0.0.1:8000/v1 and http://127.0.0.1:8000.`,
		Example: `  splash serve
  splash serve --model unsloth/Qwen3.8-27B-GGUF:UD-Q4_K_M
  splash serve --model-dir Qwen3.8-27B-UD-Q4_K_M.gguf --draft-model Qwen3.8-27B-DFlash2
  splash serve --model-dir Qwen3.8-27B-UD-Q4_K_M.gguf --no-draft --mmproj mmproj-BF16.gguf
  splash serve --host 0.0.0.0 --port 9000 --api-key "$(cat key)" --allowed-host box.example

  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"messages":[{"role":"user","content":"What is the capital of France?"}]}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() >= 0 {
				return errors.New("arguments after -- are only supported for coding clients")
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.modelFlags.flags(cmd)
	f := cmd.Flags()
	f.SortFlags = false
	s.networkFlags(f)
	s.memoryFlags.flags(cmd, f)
	s.apiFlags(f)
	s.turns(f)
	complete(cmd, "default-reasoning-effort", chat.Efforts...)
	return cmd
}

func (s *serveFlags) networkFlags(f *pflag.FlagSet) {
	f.StringVar(&s.host, "host", "127.0.0.1", "IPv4 `address` to listen on; 0.0.0.0 for all")
	f.Uint16Var(&s.port, "port", 0, "`port` to listen on (default SPLASH_PORT, else 8000)")
	f.StringArrayVar(&s.hosts, "allowed-host", nil, "accept requests for this host `name` too; may be given again")
	f.StringArrayVar(&s.origins, "allowed-origin", nil, "accept requests of web pages of this `origin`, or * for all; may be given again")
	f.StringVar(&s.key, "api-key", "", "`key` that clients must send (default SPLASH_API_KEY)")
}

func (s *serveFlags) apiFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.aliases, "served-model-name", nil, "another `name` of the model in requests; may be given again")
	f.BoolVar(&s.announce, "announce-served-name", false, "name the model by the first --served-model-name in responses")
	f.StringVar(&s.effort, "default-reasoning-effort", "", "`effort` of requests that name none: "+strings.Join(chat.Efforts, ", "))
	f.Var(&s.body, "max-request-size", "`size` of the largest request body")
	f.Var(&s.timeout, "request-timeout", "`duration` that a request may take, such as 10m")
	f.IntVar(&s.imagePixels, "max-image-pixels", media.MaxPixels, "`pixels` that an image is scaled down to, at most")
	f.IntVar(&s.queue, "queue-size", 32, "`requests` admitted at once, running or waiting")
	f.IntVar(&s.lanes, "lanes", 4, "`requests` decoded at once")
	f.BoolVar(&s.noPage, "no-webui", false, "do not serve the chat page")
}

// environment takes defaults from the environment where the command line says nothing.
func (s *serveFlags) environment(cmd *cobra.Command) error {
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	if v := os.Getenv("SPLASH_PORT"); v != "" && !given("port") {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			return usagef("SPLASH_PORT is %q; 1 to 65535 are possible", v)
		}
		s.port = uint16(n)
	}
	if v := os.Getenv("SPLASH_API_KEY"); v != "" && !given("api-key") {
		s.key = v
	}
	if v := os.Getenv("SPLASH_DEFAULT_REASONING_EFFORT"); v != "" && !given("default-reasoning-effort") {
		if s.effort = v; !chat.ValidEffort(v) {
			return usagef("SPLASH_DEFAULT_REASONING_EFFORT is %q; %s are known", v, strings.Join(chat.Efforts, ", "))
		}
	}
	return nil
}

func (s *serveFlags) checkServe(cmd *cobra.Command) error {
	if err := s.environment(cmd); err != nil {
		return err
	}
	if err := s.modelFlags.check(); err != nil {
		return err
	}
	if err := s.memoryFlags.check(cmd); err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("port") && s.port == 0:
		return usagef("--port is 0; 1 to 65535 are possible")
	case cmd.Flags().Changed("api-key") && s.key == "":
		return usagef("--api-key is empty")
	case s.announce && len(s.aliases) == 0:
		return usagef("--announce-served-name needs --served-model-name")
	case s.effort != "" && !chat.ValidEffort(s.effort):
		return usagef("--default-reasoning-effort is %q; %s are known", s.effort, strings.Join(chat.Efforts, ", "))
	case s.queue < 1 || s.queue > 1<<16:
		return usagef("--queue-size is %d; 1 to 65536 are possible", s.queue)
	case s.imagePixels < media.MinPixels || s.imagePixels > media.MaxPixels:
		return usagef("--max-image-pixels is %d; %d to %d are possible", s.imagePixels, media.MinPixels, media.MaxPixels)
	case s.lanes < 1 || s.lanes > 64:
		return usagef("--lanes is %d; 1 to 64 are possible", s.lanes)
	}
	if ip := net.ParseIP(s.host); ip == nil || ip.To4() == nil {
		return usagef("--host is %q; an IPv4 address is expected", s.host)
	}
	if err := server.CheckKey(s.key); err != nil {
		return usageError{err}
	}
	for _, origin := range s.origins {
		if err := server.CheckOrigin(origin); err != nil {
			return usageError{err}
		}
	}
	for _, name := range s.aliases {
		if !validAlias(name) {
			return usagef("--served-model-name %q: a name is printable, without spaces, \\, %%, ? and #, and without empty, . or .. segments", name)
		}
	}
	if s.port == 0 {
		s.port = 8000
	}
	return nil
}

// validAlias reports whether a name can stand in a request's path and model field.
func validAlias(name string) bool {
	for _, r := range name {
		if !unicode.IsPrint(r) || unicode.IsSpace(r) || strings.ContainsRune(`\%?#`, r) {
			return false
		}
	}
	for _, segment := range strings.Split(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

func (s *serveFlags) run(cmd *cobra.Command) error {
	if err := s.checkServe(cmd); err != nil {
		return err
	}
	console := &server.Console{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
	data := install.DataDir(os.Getenv)
	release, err := hold(filepath.Join(data, "runtime"), holder{os.Getpid(), s.label(), s.port})
	if err != nil {
		return err
	}
	defer release()
	address := net.JoinHostPort(s.host, strconv.Itoa(int(s.port)))
	if err := probe(address); err != nil {
		return fmt.Errorf("cannot bind %s: %w; %s", address, err, bindRemedy(err))
	}
	if slices.Contains(s.origins, "*") && s.key == "" {
		console.Errorf("Warning · --allowed-origin '*' without --api-key lets every web page open in a browser that reaches this server use it")
	}
	o := target.Options{Backend: s.backend, See: true, Engine: engine.Options{Queue: s.queue, Lanes: s.lanes}}
	if err := s.memoryFlags.options(&o); err != nil {
		return err
	}
	thinking, err := server.LoadThinkingKey(filepath.Join(data, "thinking.key"))
	if err != nil {
		return err
	}
	log, crashes := traceCrashes(&o, console, func(line string) { console.Printf("%s", line) })
	at, err := s.install(cmd, log)
	if err != nil {
		return err
	}
	console.Printf("Loading · %s", s.label())
	t, err := s.open(cmd, at, o, log)
	if err != nil {
		return err
	}
	defer t.Close()
	collect(t.Memory)
	e := engine.New(t.Network, t.Engine)
	defer e.Close()
	m := s.served(t, e)
	if crashes != nil {
		m.LastCrash = crashes.Last
	}
	if m.Vision != nil {
		defer m.Vision.Media.Close()
	}
	h, err := server.New(m, server.Options{
		Host: s.host, Access: server.Access{Hosts: s.hosts, Origins: s.origins, Key: s.key}, Aliases: s.aliases, Announce: s.announce,
		Effort: s.effort, MaxBody: int64(s.body), Timeout: time.Duration(s.timeout), Queue: s.queue, Console: console, Thinking: thinking, NoPage: s.noPage,
	})
	if err != nil {
		return err
	}
	return s.listen(cmd.Context(), h, t, console, address)
}

// label names the model before it is read.
func (s *serveFlags) label() string {
	switch {
	case s.model != "":
		return s.model
	case s.dir != "":
		return s.dir
	}
	return "the demonstration model"
}

// served is the target as the server sees it.
func (s *serveFlags) served(t *target.Target, e *engine.Engine) server.Model {
	device, features := t.Device()
	m := server.Model{
		ID: t.Name, Engine: e, Tokenizer: t.Tokenizer, Format: t.Format, Templates: t.Templates, Stop: t.Plan.Stop,
		Context: t.Engine.Context, Lanes: s.lanes, Backend: t.Backend, Device: device, Features: features, Drafted: t.Draft != nil, Rows: "all",
		NoVision: s.noVision(t), IdleRelease: t.Engine.IdleRelease, Memory: &server.MemoryPlan{
			Limit: t.Memory.Limit, Weights: t.Memory.Weights, Lane: t.Memory.Lane, Token: t.Memory.Token, KV: t.Memory.KV,
			Passes: t.Memory.Passes,
		},
	}
	switch {
	case t.Draft == nil:
		m.Rows = "one"
	case t.Engine.Rows == engine.BudgetRows:
		m.Rows = "budget"
	}
	if t.Vision != nil {
		m.Vision = &server.Vision{
			Media: media.New(media.Options{MaxPixels: s.imagePixels}), Encoder: vision.NewEncoder(t.Vision), Token: t.Plan.Family.Image,
		}
	}
	return m
}

// noVision says why a model takes no images.
func (s *serveFlags) noVision(t *target.Target) string {
	switch {
	case t.Plan.Family.Vision == nil:
		return "the model has no vision tower"
	case s.languageOnly:
		return "started with --language-only"
	}
	return "started without --mmproj"
}

// listen serves from the moment that everything is ready.
func (s *serveFlags) listen(ctx context.Context, h *server.Server, t *target.Target, console *server.Console, address string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", address)
	if err != nil {
		return fmt.Errorf("unable to start HTTP server: %w", err)
	}
	if t.Draft == nil {
		console.Printf("No draft · %s is decoded one token a cycle", t.Name)
	}
	input := "language only"
	if t.Vision != nil {
		input = "images and PDFs"
	}
	console.Printf("Ready · %s · context %s · %s · http://%s", t.Name, contextSize(t.Engine.Context), input, l.Addr())
	stopped := context.AfterFunc(ctx, func() { console.Printf("Stopping · releasing engine resources") })
	defer stopped()
	return h.Serve(ctx, l)
}

// probe finds out before the model is loaded whether the address is free. A listener on a wider or narrower address would
// not keep this one from binding, but answer its clients.
func probe(address string) error {
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return plainBind(err)
	}
	if err := l.Close(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	c, err := net.DialTimeout("tcp4", net.JoinHostPort(host, port), time.Second)
	if err == nil {
		c.Close()
		return errors.New("another server answers there")
	}
	return nil
}

// bindRemedy is what to do about an address that cannot be bound.
func bindRemedy(err error) string {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return "--host names an address of this machine"
	}
	return "--port names another port"
}

// plainBind is the reason of a failed bind without the words that lead to it.
func plainBind(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
