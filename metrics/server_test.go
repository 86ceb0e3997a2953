package metrics

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// TestForeignName: on a loopback address no foreign name is answered, so that a web page that gives its own name that
// address reads nothing. Under an address there is no such page.
func TestForeignName(t *testing.T) {
	srv, err := New().Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	port := srv.Addr().(*net.TCPAddr).Port
	for name, want := range map[string]int{
		"127.0.0.1": 200, "127.1.2.3": 200, "localhost": 200, "LocalHost.": 200, "[::1]": 200, "[::ffff:127.0.0.1]": 200,
		"192.0.2.1": 200, "[2001:db8::1]": 200, "web.example": 403, "localhost.web.example": 403, "127.0.0.1.web.example": 403,
	} {
		for _, host := range []string{name, fmt.Sprintf("%s:%d", name, port)} {
			if code := askedFor(t, srv, host); code != want {
				t.Errorf("asked for %s: %d, want %d", host, code, want)
			}
		}
	}
}

// TestNamedServer: a server is reached by the name that it was given; on other addresses it's for whoever is on the network.
func TestNamedServer(t *testing.T) {
	for _, c := range []struct {
		addr, host string
		want       int
	}{{"localhost:0", "web.example", 403}, {"localhost:0", "localhost", 200}, {"0.0.0.0:0", "nas.example", 200}} {
		srv, err := New().Serve(c.addr)
		if err != nil {
			t.Fatal(err)
		}
		if code := askedFor(t, srv, c.host); code != c.want {
			t.Errorf("%s asked for %s: %d, want %d", c.addr, c.host, code, c.want)
		}
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}
	h := local(http.NotFoundHandler(), "Node7.example:9464")
	for _, host := range []string{"node7.example", "node7.EXAMPLE:9464", ""} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, &http.Request{Host: host}); w.Code != http.StatusNotFound {
			t.Errorf("asked for %q: %d", host, w.Code)
		}
	}
}

// askedFor requests status.json with a Host header, and returns the status.
func askedFor(t *testing.T, srv *Server, host string) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+srv.Addr().String()+"/status.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

func TestServer(t *testing.T) {
	s := New()
	s.Program = "example"
	srv, err := s.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + srv.Addr().String()
	for path, want := range map[string]string{
		"/":            `href="/metrics"`,
		"/status.json": `"program":"example"`,
		"/healthz":     "ok\n",
		"/metrics":     "nvmeof_build_info{version=",
	} {
		if code, body := get(t, url+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if _, body := get(t, url+"/metrics"); !strings.Contains(body, "process_cpu_seconds_total") || !strings.Contains(body, "go_goroutines") {
		t.Error("nothing of the process")
	}
	if code, _ := get(t, url+"/other"); code != 404 {
		t.Errorf("/other: %d", code)
	}
	if code, _ := get(t, url+"/readyz"); code != 200 {
		t.Errorf("ready: %d", code)
	}
	s.AddReady(func() error { return errors.New("draining") })
	if code, _ := get(t, url+"/healthz"); code != 200 {
		t.Errorf("healthy, not ready: %d", code)
	}
	if code, body := get(t, url+"/readyz"); code != 503 || !strings.Contains(body, "draining") {
		t.Errorf("not ready: %d %q", code, body)
	}
	for addr, want := range map[string]string{
		srv.Addr().String(): "in use",
		"192.0.2.1:1":       "doesn't have that address",
		"nonsense":          "127.0.0.1:9464",
		"127.0.0.1:99999":   "127.0.0.1:9464",
	} {
		other, err := s.Serve(addr)
		if err == nil {
			other.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) {
			t.Errorf("serving on %s: %v", addr, err)
		}
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}

// TestListenRefused: what the system refuses isn't put down to how the address is written.
func TestListenRefused(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EMFILE: "metrics on 127.0.0.1:9464: listen tcp: socket: too many open files", unix.EACCES: "security module",
	} {
		err := explainListen("127.0.0.1:9464", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("socket", errno)})
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "write it as") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// unread is a client that reads nothing of its answer until it goes.
type unread struct {
	http.ResponseWriter
	asked chan<- struct{}
	gone  <-chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	u.asked <- struct{}{}
	<-u.gone
	return len(b), nil
}

// TestUnreadScrapes: clients that don't read what they asked for don't keep others from scraping.
func TestUnreadScrapes(t *testing.T) {
	h := New().Handler()
	scrape := func(w http.ResponseWriter) {
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	}
	asked, gone := make(chan struct{}), make(chan struct{})
	var clients sync.WaitGroup
	for range maxScrapes {
		clients.Go(func() { scrape(&unread{httptest.NewRecorder(), asked, gone}) })
		<-asked
	}
	w := httptest.NewRecorder()
	if scrape(w); w.Code != http.StatusOK {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	close(gone)
	clients.Wait()
}

// TestServerClosedAgain: a server can be closed by several goroutines, and repeatedly.
func TestServerClosedAgain(t *testing.T) {
	srv, err := New().Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := srv.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
	}
}
