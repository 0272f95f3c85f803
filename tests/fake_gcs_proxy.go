// A proxy before fake-gcs-server, which lacks two things of Google's XML interface that delta-rs uses:
//
//   - `PUT /bucket/object` becomes an upload of the JSON interface, under the same condition on the object's generation. The answer
//     gets the headers that the XML interface has.
//   - Of a list with `start-after`, the names up to that one are left out.
//
// All other requests pass as they are: what is stored, and whether a condition holds, is the emulator's business.
package main

import (
	"bytes"
	"encoding/json"
	"html"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
)

var listed = regexp.MustCompile(`(?s)<Contents>.*?<Key>(.*?)</Key>.*?</Contents>`)

func main() {
	at, emulator := os.Args[1], os.Args[2]
	log.Fatal(http.ListenAndServe(at, &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			// The emulator answers with addresses of the host that it was asked at.
			request.Out.URL.Scheme, request.Out.URL.Host, request.Out.Host = "http", emulator, request.In.Host
			asUpload(request.In, request.Out)
		},
		ModifyResponse: func(response *http.Response) error {
			query := response.Request.URL.Query()
			if response.StatusCode != http.StatusOK {
				return nil
			}
			if query.Get("uploadType") == "media" {
				return withHeaders(response)
			}
			if after := query.Get("start-after"); after != "" {
				return listedAfter(response, after)
			}
			return nil
		},
	}))
}

func asUpload(asked, sent *http.Request) {
	bucket, object, isObject := strings.Cut(strings.TrimPrefix(asked.URL.Path, "/"), "/")
	if asked.Method != http.MethodPut || !isObject || bucket == "upload" || bucket == "storage" {
		return
	}
	query := url.Values{"uploadType": {"media"}, "name": {object}}
	if generation := asked.Header.Get("x-goog-if-generation-match"); generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	sent.Method = http.MethodPost
	sent.URL.Path, sent.URL.RawPath, sent.URL.RawQuery = "/upload/storage/v1/b/"+bucket+"/o", "", query.Encode()
}

func withHeaders(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var object struct{ Etag, Generation string }
	if err := json.Unmarshal(body, &object); err != nil {
		return err
	}
	response.Header.Set("ETag", `"`+object.Etag+`"`)
	response.Header.Set("x-goog-generation", object.Generation)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

func listedAfter(response *http.Response, after string) error {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	body = listed.ReplaceAllFunc(body, func(entry []byte) []byte {
		if html.UnescapeString(string(listed.FindSubmatch(entry)[1])) <= after {
			return nil
		}
		return entry
	})
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}
