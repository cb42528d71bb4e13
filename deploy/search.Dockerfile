# Search by an exported model, without PyTorch: docker build -f deploy/search.Dockerfile -t limner-search .
# docs/export.md tells what it serves. It goes into deploy/compose.yaml as the other image does.
FROM docker.io/library/python:3.12-slim AS build
RUN python -m venv /opt/limner
COPY . /src
# --no-deps: limner's own list has PyTorch, which a search by an export never imports
RUN /opt/limner/bin/pip install --no-cache-dir -r /src/deploy/search-requirements.txt \
 && /opt/limner/bin/pip install --no-cache-dir --no-deps /src

FROM docker.io/library/python:3.12-slim
COPY --from=build /opt/limner /opt/limner
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin limner \
 && install -d -o limner -g limner -m 0750 /run/limner /var/log/limner /var/cache/limner
ENV PATH=/opt/limner/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    LIMNER_CACHE=/var/cache/limner \
    LIMNER_SERVE_RUN=/srv/limner/export \
    LIMNER_SERVE_UDS=/run/limner/limner.sock
USER limner
HEALTHCHECK --interval=10s --timeout=5s --start-period=1m \
    CMD ["python", "-c", "import httpx, os; httpx.Client(transport=httpx.HTTPTransport(uds=os.environ['LIMNER_SERVE_UDS'])).get('http://localhost/readyz').raise_for_status()"]
ENTRYPOINT ["limner"]
CMD ["serve"]
