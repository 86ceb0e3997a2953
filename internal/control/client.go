package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// patience is how long a target may take to say what it is doing or how it is configured. It does that at once, whatever
// its volumes and hosts do, unless it is stopped or hangs as a whole.
const patience = 10 * time.Second

var errSilent = errors.New("the target doesn't answer: it hangs, or is stopped")

// Client controls the target behind a socket.
type Client struct {
	socket   string
	http     http.Client
	patience time.Duration
}

// NewClient returns a client for the socket at path; it connects with the first request.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{path, http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, patience}
}

// Status returns what the target is doing.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	b, _, err := c.get(ctx, pathStatus)
	if err != nil {
		return nil, err
	}
	st := new(Status)
	return st, json.Unmarshal(b, st)
}

// Config returns the configuration, as YAML, and its tag.
func (c *Client) Config(ctx context.Context) (yaml []byte, tag string, err error) {
	return c.get(ctx, pathConfig)
}

// Apply sends a configuration, as YAML or JSON. With a tag, it is applied only if the configuration still has that tag;
// otherwise the error is ErrChanged.
func (c *Client) Apply(ctx context.Context, yaml []byte, tag string) error {
	_, _, err := c.do(ctx, http.MethodPut, pathConfig, tag, yaml)
	return err
}

// Change edits the configuration, and again if somebody else changed it at the same time.
func (c *Client) Change(ctx context.Context, edit func(*config.Config) error) error {
	for {
		b, tag, err := c.Config(ctx)
		if err != nil {
			return err
		}
		cfg, err := config.Parse("the target's configuration", b)
		if err != nil {
			return fmt.Errorf("the target is of another version, use that for ctl: %w", err)
		}
		if err := edit(cfg); err != nil {
			return err
		}
		if b, err = cfg.Marshal(); err != nil {
			return err
		}
		if err = c.Apply(ctx, b, tag); !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

// Reload makes the target read its file again.
func (c *Client) Reload(ctx context.Context) error {
	_, _, err := c.do(ctx, http.MethodPost, pathReload, "", nil)
	return err
}

// Save makes the target write its configuration to its file.
func (c *Client) Save(ctx context.Context) error {
	_, _, err := c.do(ctx, http.MethodPost, pathSave, "", nil)
	return err
}

// Drain makes the target disconnect its hosts, and returns when they are gone. If timeout is not nil, commands in
// flight have that long to finish.
func (c *Client) Drain(ctx context.Context, timeout *time.Duration) error {
	path := pathDrain
	if timeout != nil {
		path += "?timeout=" + timeout.String()
	}
	_, _, err := c.do(ctx, http.MethodPost, path, "", nil)
	return err
}

// Resume makes the target accept hosts again.
func (c *Client) Resume(ctx context.Context) error {
	_, _, err := c.do(ctx, http.MethodPost, pathResume, "", nil)
	return err
}

// get asks for something that the target knows, so the answer is not long in coming.
func (c *Client) get(ctx context.Context, path string) (b []byte, tag string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.patience, errSilent)
	defer cancel()
	b, tag, err = c.do(ctx, http.MethodGet, path, "", nil)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return nil, "", fmt.Errorf("control socket %s: %w", c.socket, errSilent)
	}
	return b, tag, err
}

func (c *Client) do(ctx context.Context, method, path, match string, body []byte) (b []byte, tag string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://nvmetgt"+path, bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	if match != "" {
		req.Header.Set("If-Match", match)
	}
	resp, err := c.http.Do(req)
	if err == nil {
		defer resp.Body.Close()
		b, err = io.ReadAll(resp.Body)
	}
	if err != nil {
		return nil, "", c.unanswered(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, "", failed(resp, b)
	}
	return b, resp.Header.Get("ETag"), nil
}

// unanswered says why a request has no answer.
func (c *Client) unanswered(err error) error {
	var op *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &op) && op.Op == "dial" && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("control socket %s: %w; only root, and the user that nvmetgt runs as, may use it", c.socket, op.Err)
	case op != nil && op.Op == "dial" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOTDIR)):
		return fmt.Errorf("control socket %s: %w; does nvmetgt run, with --control or control: in its file?", c.socket, op.Err)
	case op != nil && op.Op == "dial": // this program is short of something, or the target doesn't accept
		return fmt.Errorf("control socket %s: no connection: %w", c.socket, op)
	case errors.As(err, &request):
		err = request.Err
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE} {
		if errors.Is(err, end) {
			return fmt.Errorf("control socket %s: the target ended before it answered: %w", c.socket, err)
		}
	}
	return fmt.Errorf("control socket %s: no answer: %w", c.socket, err)
}

// failed returns the error in a response; it is a *cli.UsageError if no target could do what was asked for.
func failed(resp *http.Response, body []byte) error {
	if resp.StatusCode == http.StatusPreconditionFailed {
		return ErrChanged
	}
	var f failure
	if json.Unmarshal(body, &f) != nil || f.Error == "" {
		return fmt.Errorf("the target answers %s", resp.Status)
	}
	if resp.StatusCode == http.StatusUnprocessableEntity {
		return &cli.UsageError{Err: errors.New(f.Error)}
	}
	return errors.New(f.Error)
}
