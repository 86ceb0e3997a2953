package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/listen"
)

// At most maxScrapes scrapes run at once, and a client has scrapeTime to send its request.
const (
	scrapeTime  = 10 * time.Second
	maxScrapes  = 4
	maxHeader   = 16 << 10
	idleTime    = 2 * time.Minute
	closingTime = time.Second
)

// Handler serves /metrics, /healthz, /readyz, and a status page with its status.json.
func (s *Set) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.scraped())
	mux.HandleFunc("GET /healthz", answer(func() error { return nil })) // a program that answers works
	mux.HandleFunc("GET /readyz", answer(s.Ready))
	mux.HandleFunc("GET /status.json", s.serveStatus)
	mux.HandleFunc("GET /{$}", servePage)
	return mux
}

// textFormat is Prometheus' text format.
var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// scraped serves the metrics. They aren't compressed, which would take longer than all the rest.
func (s *Set) scraped() http.HandlerFunc {
	running := make(chan struct{}, maxScrapes)
	return func(w http.ResponseWriter, _ *http.Request) {
		select {
		case running <- struct{}{}:
		default:
			http.Error(w, "others are scraping: try again", http.StatusServiceUnavailable)
			return
		}
		all := expositions.Get().(*exposition)
		defer expositions.Put(all)
		err := s.expose(all)
		<-running // the client may take its time to read
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(textFormat))
		_, _ = w.Write(all.b) // the client may have gone
	}
}

// expose fills e with everything that a scrape returns.
func (s *Set) expose(e *exposition) error {
	e.b = e.b[:0]
	families, err := s.gather(e)
	if err != nil {
		return err
	}
	encoder := expfmt.NewEncoder(e, textFormat)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// answer serves the result of a check.
func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	}
}

// Server serves a Set over HTTP.
type Server struct {
	http http.Server
	l    net.Listener
	done chan struct{} // closed when it no longer serves
	err  error         // why it no longer serves; valid after done
}

// Serve serves the Set on a TCP address, in the background. On a loopback address it refuses requests under a name other
// than localhost and the one in addr. An error says what to do about the address, and matches the system's error, such
// as unix.EADDRINUSE.
func (s *Set) Serve(addr string) (*Server, error) {
	l, err := listen.TCP(addr)
	if err != nil {
		return nil, explainListen(addr, err)
	}
	handler := s.Handler()
	if l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		handler = local(handler, addr)
	}
	srv := &Server{
		http: http.Server{
			Handler:           handler,
			ReadTimeout:       scrapeTime,
			ReadHeaderTimeout: scrapeTime,
			WriteTimeout:      2 * scrapeTime,
			IdleTimeout:       idleTime,
			MaxHeaderBytes:    maxHeader,
		},
		l:    l,
		done: make(chan struct{}),
	}
	go func() {
		defer close(srv.done)
		srv.err = srv.http.Serve(listen.Steady(&listener{TCPListener: l}))
	}()
	return srv, nil
}

// local serves on a loopback address, addr, requests under its name and under addresses. A web page that a browser here
// has open may give its own name a loopback address (DNS rebinding), and could otherwise read what it gets.
func local(h http.Handler, addr string) http.Handler {
	own := hostname(addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostname(r.Host)
		if _, err := netip.ParseAddr(name); err != nil && name != "" && name != "localhost" && name != own {
			http.Error(w, "this is not "+name+": ask for localhost or "+own, http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostname returns the name or address in "host:port", or in "host".
func hostname(hostport string) string {
	name := (&url.URL{Host: hostport}).Hostname()
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// explainListen says what to do about an address that can't be listened on.
func explainListen(addr string, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return &listenError{fmt.Sprintf("metrics on %s: the port is in use; choose another, or stop the program that has it", addr), err}
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return &listenError{fmt.Sprintf("metrics on %s: this machine doesn't have that address; use one that `ip address` shows", addr), err}
	case errors.Is(err, unix.EACCES):
		return &listenError{fmt.Sprintf("metrics on %s: not permitted; choose a port above 1023, or if it is, permit it in the policy of the security module (as SELinux)", addr), err}
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return fmt.Errorf("metrics on %s: %w", addr, err)
	}
	return fmt.Errorf("metrics on %s: %w; write it as 127.0.0.1:9464", addr, err)
}

// listenError rewords an error of the system.
type listenError struct {
	text string
	err  error
}

func (e *listenError) Error() string { return e.text }
func (e *listenError) Unwrap() error { return e.err }

// Addr returns the address that is served.
func (s *Server) Addr() net.Addr { return s.l.Addr() }

// Close ends the server; a scrape in progress has a second to end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	<-s.done
	if !errors.Is(s.err, http.ErrServerClosed) {
		err = errors.Join(err, s.err)
	}
	return err
}
