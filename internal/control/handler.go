package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// Target is what can be controlled.
type Target interface {
	Status() Status
	// Config returns the current configuration. The tag is different after every change.
	Config() (c *config.Config, tag string)
	// Apply changes the target to c, or changes nothing. If tag is neither empty nor the
	// current one, the error is ErrChanged.
	Apply(c *config.Config, tag string) error
	// Reload applies the file that the target was started with.
	Reload() error
	// Save writes the current configuration to that file.
	Save() error
	// Drain disconnects every host: commands in flight end, within the timeout or else that of
	// the configuration; new commands and connections are refused until Resume.
	Drain(ctx context.Context, timeout *time.Duration) error
	// Resume accepts hosts again.
	Resume()
}

// Errors that a Target returns.
var (
	ErrChanged = errors.New("somebody else changed the configuration since it was read: try again")
	ErrNoFile  = errors.New("the target was started without a configuration file; 'nvmetgt ctl config > FILE' writes one that it could be started with")
)

// Paths of the interface.
const (
	pathStatus = "/v1/status"
	pathConfig = "/v1/config"
	pathReload = "/v1/reload"
	pathSave   = "/v1/save"
	pathDrain  = "/v1/drain"
	pathResume = "/v1/resume"
)

const (
	maxBody    = 4 << 20
	typeYAML   = "application/yaml"
	typeJSON   = "application/json"
	requestDue = 10 * time.Second
)

// newHandler returns what serves the interface for t.
func newHandler(t Target) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, t.Status()) })
	mux.HandleFunc("GET "+pathConfig, func(w http.ResponseWriter, _ *http.Request) { getConfig(t, w) })
	mux.HandleFunc("PUT "+pathConfig, func(w http.ResponseWriter, r *http.Request) { putConfig(t, w, r) })
	mux.HandleFunc("POST "+pathReload, func(w http.ResponseWriter, _ *http.Request) { done(w, t.Reload()) })
	mux.HandleFunc("POST "+pathSave, func(w http.ResponseWriter, _ *http.Request) { done(w, t.Save()) })
	mux.HandleFunc("POST "+pathDrain, func(w http.ResponseWriter, r *http.Request) { drain(t, w, r) })
	mux.HandleFunc("POST "+pathResume, func(w http.ResponseWriter, _ *http.Request) { t.Resume(); done(w, nil) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern == "" {
			unknown(w, r, h)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// unknown answers a request for an unknown path or method in JSON; refuse would do so in plain
// text.
func unknown(w http.ResponseWriter, r *http.Request, refuse http.Handler) {
	text := &discarded{ResponseWriter: w, status: http.StatusNotFound}
	refuse.ServeHTTP(text, r)
	why := "there is no such path"
	if allow := w.Header().Get("Allow"); allow != "" {
		why = "want " + allow
	}
	reply(w, text.status, failure{fmt.Sprintf("%s %s: %s", r.Method, r.URL.Path, why)})
}

// discarded keeps the headers and the status of a response, and drops its body.
type discarded struct {
	http.ResponseWriter
	status int
}

func (d *discarded) WriteHeader(status int)      { d.status = status }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }

// drain continues when the client has gone: the target must not stay half drained.
func drain(t Target, w http.ResponseWriter, r *http.Request) {
	var timeout *time.Duration
	if v := r.URL.Query().Get("timeout"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			reply(w, http.StatusBadRequest, failure{fmt.Sprintf("timeout %q: want a time, as 500ms or 10s", v)})
			return
		}
		timeout = &d
	}
	done(w, t.Drain(context.WithoutCancel(r.Context()), timeout))
}

func getConfig(t Target, w http.ResponseWriter) {
	c, tag := t.Config()
	b, err := c.Marshal()
	if err != nil {
		done(w, err)
		return
	}
	w.Header().Set("Content-Type", typeYAML)
	w.Header().Set("ETag", tag)
	_, _ = w.Write(b)
}

func putConfig(t Target, w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		done(w, err)
		return
	}
	// JSON is also YAML.
	c, err := config.Parse("request", b)
	if err == nil {
		err = t.Apply(c, r.Header.Get("If-Match"))
	}
	done(w, err)
}

// failure is the body of an error response.
type failure struct {
	Error string `json:"error"`
}

// done answers a request that changes something.
func done(w http.ResponseWriter, err error) {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusConflict
	var large *http.MaxBytesError
	var usage *cli.UsageError
	switch {
	case errors.Is(err, ErrChanged):
		status = http.StatusPreconditionFailed
	case errors.Is(err, config.ErrInvalid), errors.As(err, &usage):
		status = http.StatusUnprocessableEntity
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	}
	reply(w, status, failure{err.Error() + cli.Remedy(err)}) // the client doesn't know of limits here
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(status)
	_ = cli.PrintJSON(w, body) // the client has gone
}
